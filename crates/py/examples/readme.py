"""A source and a monitor on one host."""

import freshline

monitor = freshline.Monitor("udp://127.0.0.1:0")
source = freshline.Source(monitor.url, name="robot-7", topics=["pose"])
source.topic("pose").put_json({"x": 1.0, "y": 2.0})
for state in monitor.subscribe("robot-7/*"):
    print(state.name, state.json(), state.age)
    break
