/** Bytes to a server, and what comes back: no client of HTTP sends what is wrong on purpose. */
import { connect, type Socket } from "node:net";
import { monotonicMs } from "../crash/ledger.ts";

export type Answer = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
};

export type Outcome = {
  /** In order, without those that announce another. */
  readonly answers: readonly Answer[];
  /** `late`: neither an answer nor the end of the connection within the limit. */
  readonly end: "answered" | "closed" | "late" | "cut";
};

export type Sending = {
  readonly bytes: Buffer;
  /** Of each request in these bytes. */
  readonly methods: readonly string[];
  /** Hang up soon after the bytes were sent. */
  readonly isCut: boolean;
  /** On a connection of its own, because what comes after these bytes may belong to them. */
  readonly isAlone: boolean;
};

export type Wire = { send(sending: Sending): Promise<Outcome>; close(): void };

// A machine with much else to do takes seconds for what takes milliseconds.
const limitMs = 60_000;
// A connection that was silent for longer may be ended by the server at any moment.
const reuseMs = 1_000;
const cutMs = 5;
/** How long an endless answer is read. */
const streamMs = 40;

export function openWire(port: number): Wire {
  let kept: { socket: Socket; usedMs: number } | undefined;

  const connected = (): Socket => {
    const reused = kept;
    kept = undefined;
    if (reused && !reused.socket.destroyed && monotonicMs() - reused.usedMs < reuseMs)
      return reused.socket;
    reused?.socket.destroy();
    return connect({ host: "127.0.0.1", port, noDelay: true });
  };

  return {
    send({ bytes, methods, isCut, isAlone }) {
      const socket = isAlone ? connect({ host: "127.0.0.1", port, noDelay: true }) : connected();
      let received = Buffer.alloc(0);
      let isClosed = false;
      const answers: Answer[] = [];
      return new Promise<Outcome>((resolve) => {
        const finish = (end: Outcome["end"], keep = false) => {
          clearTimeout(limit);
          clearTimeout(stream);
          socket.removeAllListeners("data");
          socket.removeAllListeners("close");
          if (keep) kept = { socket, usedMs: monotonicMs() };
          else socket.destroy();
          resolve({ answers, end });
        };
        const limit = setTimeout(() => finish("late"), limitMs);
        let stream: NodeJS.Timeout | undefined;
        const read = (): void => {
          while (answers.length < methods.length) {
            const found = readAnswer(received, methods[answers.length]!, isClosed);
            if (found === undefined) return;
            if ("isEndless" in found) {
              stream ??= setTimeout(() => {
                const { status, headers, from } = found;
                answers.push({ status, headers, text: received.subarray(from).toString() });
                finish("answered");
              }, streamMs);
              return;
            }
            received = received.subarray(found.bytes);
            if (!isAnnouncement(found.status)) answers.push(found);
            if (found.status === 101 || found.headers["connection"] === "close") {
              return finish("answered");
            }
          }
          finish("answered", !isAlone && received.length === 0);
        };
        socket.removeAllListeners("error");
        socket.on("error", () => {});
        socket.on("data", (data: Buffer) => {
          received = Buffer.concat([received, data]);
          read();
        });
        socket.once("close", () => {
          isClosed = true;
          read();
          finish(answers.length > 0 ? "answered" : "closed");
        });
        socket.write(bytes);
        if (isCut) setTimeout(() => finish("cut"), cutMs);
      });
    },
    close: () => kept?.socket.destroy(),
  };
}

/** Whether another answer to the same request follows, as after `100 Continue`. */
function isAnnouncement(status: number): boolean {
  return status >= 100 && status < 200 && status !== 101;
}

type Head = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly from: number;
};
type Found = (Answer & { readonly bytes: number }) | (Head & { readonly isEndless: true });

/** The first answer in these bytes, if it is all there. */
function readAnswer(bytes: Buffer, method: string, isClosed: boolean): Found | undefined {
  const head = readHead(bytes);
  if (!head) return undefined;
  const { status, headers, from } = head;
  const whole = (text: string, end: number) => ({ status, headers, text, bytes: end });
  if (status === 0) return whole(bytes.toString("latin1"), bytes.length);
  const isBare = isAnnouncement(status) || [101, 204, 304].includes(status);
  if (method === "HEAD" || isBare) return whole("", from);
  if (headers["content-type"]?.startsWith("text/event-stream")) return { ...head, isEndless: true };
  const length = headers["content-length"];
  if (length !== undefined) {
    const end = from + Number(length);
    return bytes.length >= end ? whole(bytes.subarray(from, end).toString(), end) : undefined;
  }
  if (headers["transfer-encoding"] === "chunked") {
    const read = readChunks(bytes, from);
    return read && whole(read.text, read.end);
  }
  return isClosed ? whole(bytes.subarray(from).toString(), bytes.length) : undefined;
}

function readHead(bytes: Buffer): Head | undefined {
  const end = bytes.indexOf("\r\n\r\n");
  if (end === -1) return undefined;
  const [first, ...lines] = bytes.subarray(0, end).toString("latin1").split("\r\n");
  // What is no answer of HTTP has the status 0.
  const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(first!)?.[1] ?? 0);
  const headers = lines.map((line) => {
    const colon = line.indexOf(":");
    return [
      line.slice(0, colon).toLowerCase(),
      line
        .slice(colon + 1)
        .trim()
        .toLowerCase(),
    ];
  });
  return { status, headers: Object.fromEntries(headers) as Record<string, string>, from: end + 4 };
}

function readChunks(bytes: Buffer, from: number): { text: string; end: number } | undefined {
  const parts: Buffer[] = [];
  for (let at = from; ;) {
    const line = bytes.indexOf("\r\n", at);
    if (line === -1) return undefined;
    const size = Number.parseInt(bytes.subarray(at, line).toString("latin1"), 16);
    const end = line + 2 + size + 2;
    if (bytes.length < end) return undefined;
    if (size === 0) return { text: Buffer.concat(parts).toString(), end };
    parts.push(bytes.subarray(line + 2, line + 2 + size));
    at = end;
  }
}
