import { WebSocket } from "ws";
import { type ClientFrame, type ServerFrame, subprotocol } from "../../../src/protocol/frames.ts";
import { pauseFor } from "../until.ts";

/** A socket to some server, made again, to the same or another one, whenever it ends. */
export type Connection = {
  /** Lost without a word where there is no connection right now. */
  send(frame: ClientFrame): void;
  /** The name of the connection that frames go over, once it was greeted. */
  readonly on: string | undefined;
  /** The server that it leads to, or led to last. */
  readonly at: string | undefined;
  readonly isClosed: boolean;
  close(): void;
};

export type ConnectionOptions = {
  user: string;
  label: string;
  /** The key of a server that wants one. */
  key?: string | undefined;
  /** Where to connect next. Undefined: nowhere, for now. */
  pick: () => string | undefined;
  /** How long a server that is pinged may say nothing before it is left. */
  silentMs: number;
  onFrame: (frame: ServerFrame, on: string) => void;
  onClosed: (on: string, code: number) => void;
};

const pingMs = 500;
// A server that is asleep is left soon; one that is only slow would never be reached with the same time again.
const handshakeMs = { first: 2_000, most: 8_000 };
const againMs = 100;

export function keepConnected(options: ConnectionOptions): Connection {
  const { user, label, key, pick, silentMs, onFrame, onClosed } = options;
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  let made = 0;
  let closed = false;
  let socket: WebSocket | undefined;
  let at: string | undefined;
  let on: string | undefined;
  let handshakeTimeout = handshakeMs.first;

  const send = (frame: ClientFrame): void => {
    if (on !== undefined && socket?.readyState === WebSocket.OPEN) {
      socket.send(JSON.stringify(frame));
    }
  };

  /** One connection, until it ends. */
  const connected = (url: string): Promise<void> =>
    new Promise((resolve) => {
      const name = `${label}#${++made}`;
      const address = `${url.replace("http", "ws")}/v1/socket?user=${user}`;
      const own = new WebSocket(address, subprotocol, { handshakeTimeout, headers });
      handshakeTimeout = Math.min(handshakeTimeout * 2, handshakeMs.most);
      socket = own;
      at = url;
      let heardMs = performance.now();
      const pinging = setInterval(() => {
        if (own.readyState === WebSocket.CONNECTING) return;
        if (performance.now() - heardMs > silentMs) own.terminate();
        else send({ type: "ping", ref: "ping" });
      }, pingMs);
      own.on("open", () => (heardMs = performance.now()));
      own.on("message", (data: Buffer) => {
        heardMs = performance.now();
        for (const frame of JSON.parse(data.toString()) as ServerFrame[]) {
          if (frame.type === "hello") {
            on = name;
            handshakeTimeout = handshakeMs.first;
          }
          onFrame(frame, name);
        }
      });
      own.on("error", () => {});
      own.on("close", (code) => {
        clearInterval(pinging);
        if (on === name) onClosed(name, code);
        on = undefined;
        resolve();
      });
    });
  const run = async (): Promise<void> => {
    while (!closed) {
      const url = pick();
      if (url !== undefined) await connected(url);
      if (!closed) await pauseFor(againMs);
    }
  };
  void run();

  return {
    send,
    get on() {
      return on;
    },
    get at() {
      return at;
    },
    get isClosed() {
      return closed;
    },
    close() {
      closed = true;
      socket?.terminate();
    },
  };
}
