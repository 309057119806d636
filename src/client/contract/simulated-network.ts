import type { Clock } from "../../base/clock.ts";
import { between, fraction, type Random } from "../../base/random.ts";
import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";
import { parseClientFrame } from "../../protocol/parse-frame.ts";
import type { SocketClass, SocketLike } from "../options.ts";

/** How often each thing goes wrong, as a share. */
export type Faults = {
  /** A socket can't be opened. */
  closedDoor: number;
  /** A message of either side is the last one that comes through, and both sides hear of it. */
  cut: number;
  /** The same, but neither side learns of it. */
  halfOpen: number;
  /** Entries are sent twice, or from before the place. */
  doubled: number;
  /** Entries are left out, as a server must never do. */
  skipped: number;
  /** What is asked is refused for now, before or after it was stored. */
  refused: number;
};

export const calm: Faults = {
  closedDoor: 0,
  cut: 0,
  halfOpen: 0,
  doubled: 0,
  skipped: 0,
  refused: 0,
};

type FakeSocket = SocketLike & { readyState: number };

/** One connection, as the network knows it. */
export type SimulatedConnection = {
  readonly sinceMs: number;
  readonly socket: FakeSocket;
  isOver: boolean;
  /** When the last message arrives that is on its way to the client, and to the server. */
  toClientMs: number;
  toServerMs: number;
};

type NetworkParts = {
  clock: Clock;
  random: Random;
  /** A client has come; what is given takes its frames. */
  onOpen(line: SimulatedConnection): (frame: ClientFrame) => void;
};

/** A network that doesn't keep anything but order. */
export function simulateNetwork({ clock, random, onOpen }: NetworkParts) {
  let faults = calm;
  let isUp = true;
  const lines = new Set<SimulatedConnection>();
  const happens = (share: number) => fraction(random) < share;

  const end = (line: SimulatedConnection, code: number, isHeard = true) => {
    if (line.isOver) return;
    line.isOver = true;
    lines.delete(line);
    if (!isHeard) return;
    clock.after(between(random, 0, 50), () => {
      line.socket.readyState = 3;
      line.socket.onclose?.({ code, reason: "" } as never);
    });
  };

  class Socket implements FakeSocket {
    readyState = 0;
    onopen = null;
    onmessage: FakeSocket["onmessage"] = null;
    onerror = null;
    onclose: FakeSocket["onclose"] = null;
    #line: SimulatedConnection | undefined;
    #take: ((frame: ClientFrame) => void) | undefined;

    constructor() {
      clock.after(between(random, 1, 300), () => {
        if (this.readyState !== 0) return;
        if (!isUp || happens(faults.closedDoor)) {
          this.readyState = 3;
          return this.onclose?.({ code: 1006, reason: "" } as never);
        }
        this.readyState = 1;
        const sinceMs = clock.monotonic();
        this.#line = { socket: this, sinceMs, isOver: false, toClientMs: 0, toServerMs: 0 };
        lines.add(this.#line);
        this.#take = onOpen(this.#line);
      });
    }
    send(text: string) {
      const line = this.#line!;
      if (happens(faults.cut)) end(line, 1006);
      if (happens(faults.halfOpen)) end(line, 1006, false);
      const nowMs = clock.monotonic();
      line.toServerMs = Math.max(line.toServerMs, nowMs + between(random, 0, 200));
      clock.after(line.toServerMs - nowMs, () => {
        // What was on its way when a connection was lost may come through, or not.
        if (!line.isOver || happens(0.3)) this.#take!(parseClientFrame(JSON.parse(text)));
      });
    }
    close() {
      this.readyState = 3;
      if (this.#line) end(this.#line, 1000, false);
    }
  }

  return {
    WebSocket: Socket as unknown as SocketClass,
    lines: lines as ReadonlySet<SimulatedConnection>,
    happens,
    end,

    /** Sends frames to the client, in one message. */
    push(line: SimulatedConnection, ...frames: ServerFrame[]) {
      if (line.isOver) return;
      const isLast = happens(faults.cut);
      const isSilent = happens(faults.halfOpen);
      const nowMs = clock.monotonic();
      line.toClientMs = Math.max(line.toClientMs, nowMs + between(random, 0, 200));
      const { socket } = line;
      const data = JSON.stringify(frames);
      clock.after(line.toClientMs - nowMs, () => {
        if (socket.readyState === 1) socket.onmessage?.({ data } as never);
      });
      if (isLast || isSilent) end(line, 1006, !isSilent);
    },

    get faults() {
      return faults;
    },
    set faults(next: Faults) {
      faults = next;
    },
    set isUp(up: boolean) {
      isUp = up;
    },
  };
}
