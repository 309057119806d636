import type { IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import { playRole } from "../roles.ts";
import { answerLooks, answerTidying } from "./looking.ts";
import type { Serving } from "./server.ts";

/**
 * The limit: bare `ws` that sends back what it gets and stores nothing. What comes in at `/tell` goes
 * to everybody at `/hear`.
 */
playRole(
  async (_: null, bench) => {
    const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: false });
    await new Promise((resolve) => server.once("listening", resolve));
    const hearers = new Set<WebSocket>();
    const asText = { binary: false };
    server.on("connection", (socket: WebSocket, request: IncomingMessage) => {
      if (request.url === "/hear") hearers.add(socket);
      const tells = request.url === "/tell";
      socket.on("message", (data: Buffer) => {
        if (tells) for (const each of hearers) each.send(data, asText);
        else socket.send(data, asText);
      });
      socket.on("error", () => {});
      socket.once("close", () => hearers.delete(socket));
    });
    void answerLooks(bench);
    void answerTidying(bench);
    const { port } = server.address() as AddressInfo;
    bench.tell("ready", { url: `http://127.0.0.1:${port}`, podId: "" } satisfies Serving);
    await bench.heard("stop");
  },
  { ends: "at once" },
);
