/**
 * A gateway with simulated sources, for development and tests of the page: HTTP with the files and headers of
 * the real one, and the Freshline session over WebSocket.
 *
 *     node test/fake-gateway.mjs [--port 8090] [--sources 10] [--topics 5] [--rate 10] [--plain]
 */

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { parseArgs } from "node:util";
import { WebSocketServer } from "ws";
import { matches } from "../client/subscription.js";
import { GatewaySession } from "./gateway-session.mjs";
import { simulate } from "./simulated.mjs";

const ROOT = new URL("..", import.meta.url);
export const TYPES = { html: "text/html; charset=utf-8", css: "text/css", js: "text/javascript", svg: "image/svg+xml" };
export const HEADERS = {
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; " +
    "connect-src 'self' https: wss: ws:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
};
/** The interval between states, ms. */
const TICK = 10;

export class FakeGateway {
  /** @param {{port?: number, token?: string, commands?: string[], series: ReturnType<typeof simulate>}} options */
  constructor({ port = 0, token = "test-token", commands = ["cmd"], series }) {
    Object.assign(this, { port, token, commands, series });
    this.browsers = new Set();
    this.received = [];
    this.silent = new Set();
    this.isPaused = false;
    this.startedAt = performance.now();
  }

  get url() {
    return `http://127.0.0.1:${this.port}/`;
  }

  async start() {
    this.server = createServer((request, response) => this.#onRequest(request, response));
    this.sockets = new WebSocketServer({ noServer: true, handleProtocols: () => "freshline.2" });
    this.server.on("upgrade", (request, socket, head) => this.#onUpgrade(request, socket, head));
    await new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen(this.port, "127.0.0.1", resolve);
    });
    this.port = this.server.address().port;
    this.timer = setInterval(() => this.#tick(), TICK);
    this.slowTimer = setInterval(() => this.#reportAll(), 1000);
    return this;
  }

  async stop() {
    clearInterval(this.timer);
    clearInterval(this.slowTimer);
    for (const { socket } of this.browsers) socket.terminate();
    this.browsers.clear();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** Silences a source. */
  silence(source) {
    this.silent.add(source);
  }

  /** Removes the series of a source. */
  removeSource(source) {
    const gone = this.series.filter((it) => it.source === source);
    this.series = this.series.filter((it) => it.source !== source);
    for (const { session } of this.browsers) {
      for (const { id } of gone) {
        session.remove("names", id);
        session.remove("states", id);
      }
    }
  }

  async #onRequest(request, response) {
    const { pathname } = new URL(request.url, this.url);
    if (pathname === "/api/endpoint") return this.#onEndpoint(request, response);
    const file = pathname === "/" ? "monitor/index.html" : pathname.slice(1);
    const isKnown = /^(monitor|client)\/[\w-]+\.(html|css|js|svg)$/.test(file);
    const content = isKnown ? await readFile(new URL(file, ROOT)).catch(() => null) : null;
    if (content === null) return response.writeHead(404, HEADERS).end();
    response.writeHead(200, { ...HEADERS, "Content-Type": TYPES[file.split(".").pop()] }).end(content);
  }

  #onEndpoint(request, response) {
    const headers = { ...HEADERS, "Content-Type": "application/json", "Access-Control-Allow-Origin": "*" };
    if (request.headers.authorization !== `Bearer ${this.token}`) {
      return response.writeHead(401, headers).end(JSON.stringify({ error: "the token is wrong" }));
    }
    const fields = { version: "0.1.0", webtransport: null, websocket: "/ws", commands: this.commands };
    response.writeHead(200, headers).end(JSON.stringify(fields));
  }

  #onUpgrade(request, socket, head) {
    const url = new URL(request.url, this.url);
    if (url.pathname !== "/ws" || url.searchParams.get("token") !== this.token) {
      return socket.end("HTTP/1.1 401 Unauthorized\r\n\r\n");
    }
    this.sockets.handleUpgrade(request, socket, head, (it) => this.#onSocket(it));
  }

  #onSocket(socket) {
    const session = new GatewaySession((bytes) => socket.send(bytes));
    const browser = { socket, session, patterns: [], named: new Set() };
    this.browsers.add(browser);
    socket.on("close", () => this.browsers.delete(browser));
    socket.on("message", (message, isBinary) => {
      if (isBinary) session.onMessage(new Uint8Array(message));
      else this.#onControl(browser, message.toString());
    });
    session.open();
    setTimeout(() => this.#report(browser), 30);
  }

  #onControl(browser, text) {
    const { id, subscribe, command } = JSON.parse(text);
    const answer = (fields) => browser.socket.send(JSON.stringify({ id, ...fields }));
    if (Array.isArray(subscribe)) {
      browser.patterns = subscribe;
      const count = this.series.filter((it) => this.#isWanted(browser, it)).length;
      answer({ ok: true, series: count });
      this.#report(browser);
    } else if (command && this.commands.includes(command.topic)) {
      this.received.push(command);
      answer({ ok: true });
    } else {
      answer({ ok: false, error: "there is no such topic of commands" });
    }
  }

  #isWanted({ patterns }, { source, topic }) {
    return patterns.some((pattern) => matches(pattern, topic === undefined ? source : `${source}/${topic}`));
  }

  #tick() {
    if (this.isPaused) return;
    const at = performance.now() - this.startedAt;
    for (const one of this.series) {
      if (at < one.nextAt || this.silent.has(one.source)) continue;
      one.nextAt = Math.max(one.nextAt + 1000 / one.rate, at - 100);
      if (this.browsers.size === 0) continue;
      const content = one.state();
      const state = new Uint8Array(9 + content.length);
      new DataView(state.buffer).setUint32(1, content.length);
      state.set(content, 9);
      const age = one.age();
      for (const browser of this.browsers) if (this.#isWanted(browser, one)) this.#put(browser, one, state, age);
    }
    for (const { session } of this.browsers) session.flush();
  }

  #put({ session, named }, { id, source, topic, key }, state, age) {
    if (!named.has(id)) {
      named.add(id);
      session.set("names", id, encode({ source, topic, key, of: this.#sourceId(source) }));
    }
    session.set("states", id, state, age);
  }

  #sourceId(source) {
    return this.series.findIndex((it) => it.source === source);
  }

  #reportAll() {
    if (!this.isPaused) for (const browser of this.browsers) this.#report(browser);
  }

  #report({ session, patterns }) {
    const sources = [...new Set(this.series.map((it) => it.source))];
    const seconds = (performance.now() - this.startedAt) / 1000;
    for (const source of patterns.length > 0 ? sources : []) {
      const id = this.#sourceId(source);
      const fresh = Math.round(seconds * 20);
      const silence = this.silent.has(source) ? seconds : 0.05;
      const loss = id % 7;
      const address = `192.0.2.${1 + (id % 200)}:47${String(id % 1000).padStart(3, "0")}`;
      const fields = [source, address, silence, 20, fresh, 3, loss * 5, 22.5, 41.2, 180.4, 46, 5, 0, 12, fresh + 20];
      session.set("sources", id, encode(fields));
    }
    session.set("link", null, encode(this.#link(session, sources.length)));
    session.flush();
  }

  #link(session, sources) {
    const ms = (ns) => (Number.isFinite(ns) ? Math.round(ns / 1e4) / 100 : null);
    return {
      law: "acp+d",
      rate: 1000 / TICK,
      srtt_ms: ms(session.rtt),
      rtt_min_ms: ms(session.minRtt),
      backlog: 1.2,
      sent: session.seq,
      acked: session.acked,
      lost_part: 0,
      limited_by: null,
      left_out: 0,
      transport: "websocket",
      sources,
      monitor: { duration_s: Math.round((performance.now() - this.startedAt) / 1000), fresh: session.seq },
    };
  }
}

const encode = (value) => new TextEncoder().encode(JSON.stringify(value));

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const { values } = parseArgs({
    options: {
      port: { type: "string", default: "8090" },
      sources: { type: "string", default: "10" },
      topics: { type: "string", default: "5" },
      rate: { type: "string", default: "10" },
      plain: { type: "boolean", default: false },
    },
  });
  const [port, sources, topics, rate] = ["port", "sources", "topics", "rate"].map((it) => Number(values[it]));
  const gateway = await new FakeGateway({ port, series: simulate({ sources, topics, rate, plain: values.plain }) }).start();
  console.log(`${gateway.url}#token=${gateway.token}`);
}
