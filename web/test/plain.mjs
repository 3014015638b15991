/** A typical WebSocket server: `node plain.mjs PORT` sends each state to every client, 200/s. */

import { WebSocketServer } from "ws";

const server = new WebSocketServer({ port: Number(process.argv[2]) });
server.on("connection", (socket) => {
  const sending = setInterval(() => socket.send(String(Date.now()).padEnd(400)), 5);
  socket.on("close", () => clearInterval(sending));
  socket.on("error", () => socket.terminate());
});
server.on("listening", () => console.log("listening"));
