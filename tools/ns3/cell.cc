// A Wi-Fi cell of ns-3, with which docs/wlan.md ("Against ns-3") compares the lab's cell.
//
// Stations 1 to N send packets to station 0 without IP, all at the same place over an ideal channel.
//
//   apt-get install libns3-dev g++                    # Debian 12: ns-3.37
//   g++ -O2 -std=c++17 cell.cc -o cell
//       -lns3-wifi -lns3-network -lns3-propagation -lns3-mobility -lns3-core -lns3-spectrum
//
//   ./cell --stations=20 --seconds=20                                     # saturated, 802.11a
//   ./cell --stations=10 --mode=OfdmRate54Mbps --preamble=0               # EIFS after collisions
//   ./cell --standard=ac --mode=VhtMcs9 --width=80 --aggregate=64 --size=1500
//       --pattern=periodic --rate=15000 --seconds=3
//   ./cell --standard=ac --mode=VhtMcs9 --width=80 --aggregate=64 --size=1500
//       --pattern=poisson --rate=7500 --seconds=6 --stations=2 --bar=0
//       --ns3::WifiRemoteStationManager::MaxSsrc=1000                     # never drops a packet
//   ./cell --stations=24 --size=528 --pattern=poisson --rate=36 --echo=80
//
// Prints the goodput as UDP payload in Mbit/s (packets less 28 bytes), the mean, median and 99th
// percentile of delays, the mean age, and the mean RTT if packets are answered (--echo).

#include "ns3/core-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/propagation-module.h"
#include "ns3/qos-txop.h"
#include "ns3/txop.h"
#include "ns3/wifi-mac-queue.h"
#include "ns3/wifi-mac.h"
#include "ns3/wifi-net-device.h"
#include "ns3/wifi-remote-station-manager.h"
#include "ns3/yans-wifi-helper.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

using namespace ns3;

// The age at station 0 of the updates from one station, integrated from `warm` on.
struct Age
{
    double newest = -1; // the sending time of the newest packet; negative before the first
    double since = 0;   // its arrival time
    double area = 0;

    void Until(double now, double warm)
    {
        double from = std::max(since, warm);
        if (newest >= 0 && now > from)
        {
            double span = now - from;
            area += span * (from - newest) + span * span / 2;
        }
    }
};

static std::string standard = "a", mode = "OfdmRate12Mbps", pattern = "saturated";
static uint32_t stations = 1, size = 1052, width = 20, aggregate = 1, queue = 500, answer = 0;
static double rate = 1, seconds = 10, warm = 1;
static NetDeviceContainer devices;
static Ptr<UniformRandomVariable> uniform;
static std::map<uint64_t, std::pair<Time, uint32_t>> sent; // by packet: sending time and station
static std::map<uint64_t, Time> answers;                   // by packet: sending time of the update
static std::vector<double> delays, roundTrips;
static std::vector<Age> ages;
static uint64_t received = 0;

static void
Send(uint32_t from)
{
    Ptr<Packet> packet = Create<Packet>(size);
    sent[packet->GetUid()] = {Simulator::Now(), from};
    devices.Get(from)->Send(packet, devices.Get(0)->GetAddress(), 0x0800);
}

// Keeps two frames queued.
static void
Saturate(uint32_t from)
{
    Ptr<WifiMac> mac = DynamicCast<WifiNetDevice>(devices.Get(from))->GetMac();
    auto packets = mac->GetTxopQueue(mac->GetQosSupported() ? AC_BE : AC_BE_NQOS);
    while (packets->GetNPackets() < 2 * aggregate + 2)
    {
        Send(from);
    }
    Simulator::Schedule(MicroSeconds(100), &Saturate, from);
}

static void
Arrive(uint32_t from)
{
    Send(from);
    double gap = pattern == "poisson" ? -std::log(1 - uniform->GetValue()) / rate : 1 / rate;
    Simulator::Schedule(Seconds(gap), &Arrive, from);
}

static bool
Receive(Ptr<NetDevice> device, Ptr<const Packet> packet, uint16_t, const Address&)
{
    double now = Simulator::Now().GetSeconds();
    if (auto answered = answers.find(packet->GetUid()); answered != answers.end())
    {
        double at = answered->second.GetSeconds();
        if (at >= warm)
        {
            roundTrips.push_back(now - at);
        }
        answers.erase(answered);
        return true;
    }
    auto known = sent.find(packet->GetUid());
    if (known == sent.end())
    {
        return true;
    }
    auto [time, from] = known->second;
    double at = time.GetSeconds();
    sent.erase(known);
    if (answer > 0 && device == devices.Get(0))
    {
        Ptr<Packet> reply = Create<Packet>(answer);
        answers[reply->GetUid()] = time;
        device->Send(reply, devices.Get(from)->GetAddress(), 0x0800);
    }
    Age& age = ages[from];
    if (at > age.newest)
    {
        age.Until(now, warm);
        age.newest = at;
        age.since = now;
    }
    received += now >= warm;
    if (at >= warm)
    {
        delays.push_back(now - at);
    }
    return true;
}

static double
Mean(const std::vector<double>& values)
{
    double sum = 0;
    for (double value : values)
    {
        sum += value;
    }
    return values.empty() ? 0 : sum / values.size();
}

int
main(int argc, char** argv)
{
    bool preamble = true, bar = true;
    uint32_t seed = 1;
    CommandLine cmd;
    cmd.AddValue("standard", "a, n or ac", standard);
    cmd.AddValue("mode", "the data mode, such as OfdmRate12Mbps or VhtMcs9", mode);
    cmd.AddValue("width", "MHz", width);
    cmd.AddValue("stations", "how many send to station 0", stations);
    cmd.AddValue("size", "bytes of a packet with IP and UDP headers", size);
    cmd.AddValue("pattern", "saturated, periodic or poisson", pattern);
    cmd.AddValue("rate", "packets/s of each station", rate);
    cmd.AddValue("aggregate", "1: no A-MPDUs; more: A-MPDUs as long as the standard allows", aggregate);
    cmd.AddValue("queue", "packets in a station's queue", queue);
    cmd.AddValue("echo", "bytes of station 0's answer to each packet", answer);
    cmd.AddValue("preamble", "0: no preamble detection model", preamble);
    cmd.AddValue("bar", "0: no BlockAckReq after a missing BlockAck", bar);
    cmd.AddValue("seconds", "after 1 s of warm-up", seconds);
    cmd.AddValue("seed", "the run", seed);
    cmd.Parse(argc, argv);

    RngSeedManager::SetSeed(7);
    RngSeedManager::SetRun(seed);
    uniform = CreateObject<UniformRandomVariable>();
    Config::SetDefault("ns3::WifiMacQueue::MaxSize",
                       QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, queue)));
    Config::SetDefault("ns3::WifiMacQueue::MaxDelay", TimeValue(Seconds(1000)));
    Config::SetDefault("ns3::QosTxop::UseExplicitBarAfterMissedBlockAck", BooleanValue(bar));

    bool qos = standard != "a";
    NodeContainer nodes(stations + 1);
    auto channel = CreateObject<YansWifiChannel>();
    auto loss = CreateObject<FixedRssLossModel>();
    loss->SetRss(-30);
    channel->SetPropagationLossModel(loss);
    channel->SetPropagationDelayModel(CreateObject<ConstantSpeedPropagationDelayModel>());
    YansWifiPhyHelper phy;
    phy.SetChannel(channel);
    if (!preamble)
    {
        phy.DisablePreambleDetectionModel();
    }
    WifiHelper wifi;
    wifi.SetStandard(standard == "a"   ? WIFI_STANDARD_80211a
                     : standard == "n" ? WIFI_STANDARD_80211n
                                       : WIFI_STANDARD_80211ac);
    phy.Set("ChannelSettings", StringValue("{0, " + std::to_string(width) + ", BAND_5GHZ, 0}"));
    wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager",
                                 "DataMode", StringValue(mode),
                                 "ControlMode", StringValue("OfdmRate6Mbps"));
    WifiMacHelper mac;
    mac.SetType("ns3::AdhocWifiMac", "QosSupported", BooleanValue(qos));
    devices = wifi.Install(phy, mac, nodes);
    MobilityHelper().Install(nodes);
    for (uint32_t i = 0; i <= stations; i++)
    {
        auto stationMac = DynamicCast<WifiNetDevice>(devices.Get(i))->GetMac();
        for (const char* basic : {"OfdmRate12Mbps", "OfdmRate24Mbps"})
        {
            stationMac->GetWifiRemoteStationManager()->AddBasicMode(WifiMode(basic));
        }
        if (qos)
        {
            uint32_t longest = aggregate == 1 ? 0 : standard == "ac" ? 1048575 : 65535;
            stationMac->SetAttribute("BE_MaxAmpduSize", UintegerValue(longest));
            stationMac->SetAttribute("BE_MaxAmsduSize", UintegerValue(0));
        }
        devices.Get(i)->SetReceiveCallback(MakeCallback(&Receive));
    }
    wifi.AssignStreams(devices, 100);
    ages.resize(stations + 1);

    // Stations set up their block ack agreements one after the other.
    double begin = qos ? 0.01 * stations + 0.2 : 0;
    warm += begin;
    for (uint32_t from = 1; from <= stations; from++)
    {
        if (qos)
        {
            Simulator::Schedule(MilliSeconds(10 * from), &Send, from);
        }
        if (pattern == "saturated")
        {
            Simulator::Schedule(Seconds(begin) + NanoSeconds(from), &Saturate, from);
        }
        else
        {
            Simulator::Schedule(Seconds(begin + uniform->GetValue() / rate), &Arrive, from);
        }
    }
    double end = warm + seconds;
    Simulator::Stop(Seconds(end));
    Simulator::Run();

    double age = 0;
    for (uint32_t from = 1; from <= stations; from++)
    {
        ages[from].Until(end, warm);
        age += ages[from].area / seconds / stations;
    }
    std::sort(delays.begin(), delays.end());
    auto quantile = [](double part) {
        return delays.empty() ? 0 : delays[size_t(part * (delays.size() - 1))] * 1e3;
    };
    printf("payload %.4f Mbit/s, delay %.4f ms (median %.4f, 99 %% %.4f), age %.3f ms, round trip "
           "%.4f ms\n",
           received * (size - 28.0) * 8 / seconds / 1e6, Mean(delays) * 1e3, quantile(0.5),
           quantile(0.99), age * 1e3, Mean(roundTrips) * 1e3);
    Simulator::Destroy();
}
