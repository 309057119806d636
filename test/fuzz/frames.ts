/**
 * Conversations on sockets: frames as the protocol has them, and frames that are cut, binary, nested, out of
 * order, too large or too many. Each is made from the seed alone.
 */
import type { Socket } from "node:net";
import { WebSocket } from "ws";
import { seededRandom } from "../../src/base/random.ts";
import { type ClientFrame, subprotocol } from "../../src/protocol/frames.ts";
import { type Draw, drawOf, type Known, seedOf } from "./draw.ts";
import { leaksIn } from "./judge.ts";
import { hostileText, hostileValue, mutated } from "./values.ts";
import type { FuzzCaller } from "./world.ts";

type FrameType = ClientFrame["type"];

/** What is sent, one after another. */
export type Step =
  | { readonly type: "text"; readonly text: string; readonly refs: readonly string[] }
  | { readonly type: "binary"; readonly bytes: Buffer }
  | { readonly type: "fragments"; readonly parts: readonly string[] }
  /** Bytes that are no message of a WebSocket. */
  | { readonly type: "raw"; readonly bytes: Buffer };

export type Conversation = {
  readonly number: number;
  readonly caller: string;
  readonly protocols: readonly string[];
  readonly query: string;
  readonly steps: readonly Step[];
  readonly end: "close" | "terminate" | "half";
};

/** A frame of each type, so that a new one doesn't compile until it is here. */
const makers: { readonly [Type in FrameType]: (draw: Draw) => object } = {
  join: (draw) => ({
    session: sessionIn(draw),
    lastSeq: draw.pick([0, 0, 1, 2, 1_000]),
    ...(draw.chance(0.2) && { incarnation: "x" }),
    ...(draw.chance(0.2) && { lastMessageId: "m-1" }),
  }),
  leave: (draw) => ({ session: sessionIn(draw) }),
  send: (draw) => ({
    session: sessionIn(draw),
    message: {
      parts: [{ type: "text", text: draw.pick(["hello", "Zoë", ""]) }],
      ...(draw.chance(0.3) && { id: draw.pick(["m-1", "m-3", "m-4"]) }),
      ...(draw.chance(0.3) && { author: draw.pick(["ada", "zoe"]) }),
      ...(draw.chance(0.1) && { role: "assistant" }),
      ...(draw.chance(0.1) && { tokens: 3 }),
    },
    ...(draw.chance(0.2) && { trace: { traceparent: "00-0-0-0" } }),
  }),
  tool_result: (draw) => ({
    session: sessionIn(draw),
    messageId: "m-1",
    results: [
      {
        toolCallId: "c",
        ...draw.pick<object>([{ approved: true }, { output: 7 }, { errorText: "" }]),
      },
    ],
  }),
  signal: (draw) => ({ session: sessionIn(draw), name: "approve", payload: { a: 1 } }),
  regenerate: (draw) => ({
    session: sessionIn(draw),
    ...(draw.chance(0.5) && { messageId: "m-1" }),
  }),
  stop: (draw) => ({ session: sessionIn(draw), ...(draw.chance(0.3) && { epoch: 1 }) }),
  read: (draw) => ({ session: sessionIn(draw), seq: draw.pick([0, 1, 2, 2 ** 40]) }),
  presence: (draw) => ({
    session: sessionIn(draw),
    ...(draw.chance(0.8) && { typing: draw.chance(0.5) }),
  }),
  presence_leave: (draw) => ({ session: sessionIn(draw) }),
  inbox: () => ({}),
  inbox_leave: () => ({}),
  watch: (draw) => ({
    topics: draw.pick([
      ["overview", "pods"],
      ["queues", "throttles", "failures", "audit"],
      [`task:${draw.pick([...(draw.known["taskId"] ?? []), "none"])}`],
      ["tasks:none/none", "run:none", "flow:none", "throttle:none/x"],
      [],
      ["none"],
      ["task:%"],
    ]),
  }),
  ping: () => ({}),
  token: (draw) => ({ token: draw.pick(["x", "a.b.c", "x".repeat(400)]) }),
};
const types = Object.keys(makers) as FrameType[];

function sessionIn(draw: Draw): string {
  return draw.pick([...(draw.known["session"] ?? []), "none"]);
}

export function makeConversation(
  { seed, number }: { seed: number; number: number },
  { known, callers }: { known: Known; callers: readonly string[] },
): Conversation {
  const draw = drawOf(seededRandom(seedOf(seed ^ 0x50c8e7, number)), known);
  const steps: Step[] = [];
  let refs = 0;
  const frame = (): Record<string, unknown> => {
    // The first conversations have every frame once, as it should be.
    const type = number < types.length ? types[number]! : draw.pick(types);
    return { type, ref: `r${++refs}`, ...makers[type](draw) };
  };
  const count = draw.pick([2, 5, 10, 30]);
  for (let at = 0; at < count; at++) steps.push(stepOf(frame, draw, number >= types.length));
  return {
    number,
    caller: number < types.length ? callers[0]! : draw.pick(callers),
    protocols: draw.chance(0.8) ? [subprotocol] : draw.pick([[], ["x"], [subprotocol, "bearer.x"]]),
    query: draw.chance(0.85)
      ? "?user=ada"
      : draw.pick(["", "?ticket=none", "?user=%00", "?user=", "?token=x", "?user=a&user=b", "?%"]),
    steps,
    end: draw.pick(["close", "close", "terminate", "half"]),
  };
}

function stepOf(frame: () => Record<string, unknown>, draw: Draw, changes: boolean): Step {
  const whole = (frames: readonly Record<string, unknown>[], isBatch: boolean): Step => ({
    type: "text",
    text: JSON.stringify(isBatch ? frames : frames[0]),
    refs: frames.map(({ ref }) => String(ref)),
  });
  const unanswered = (text: string): Step => ({ type: "text", text, refs: [] });
  if (!changes || draw.chance(0.55)) return whole([frame()], false);
  switch (draw.between(0, 12)) {
    case 0:
      return whole(Array.from({ length: draw.pick([2, 20, 200]) }, frame), true);
    case 1: {
      const text = JSON.stringify(frame());
      return unanswered(text.slice(0, draw.between(0, text.length)));
    }
    case 2:
      return { type: "binary", bytes: Buffer.from(JSON.stringify(frame())) };
    case 3:
      return unanswered(JSON.stringify(mutated(frame(), draw)) ?? "");
    case 4:
      return unanswered(JSON.stringify({ ...frame(), [hostileText(draw)]: hostileValue(draw) }));
    case 5:
      return unanswered(JSON.stringify({ ...frame(), ref: hostileValue(draw) }));
    case 6:
      return unanswered(
        draw.pick(["", "null", "[]", "7", "[[]]", "[null]", "{", "[".repeat(50_000)]),
      );
    case 7:
      return unanswered(JSON.stringify({ ...frame(), type: draw.pick(["hello", "__proto__", 7]) }));
    case 8: {
      const text = JSON.stringify(frame());
      const half = Math.floor(text.length / 2);
      return { type: "fragments", parts: [text.slice(0, half), text.slice(half)] };
    }
    case 9:
      // A flood: the same over and over, in one message.
      return unanswered(JSON.stringify(Array.from({ length: draw.pick([201, 200]) }, frame)));
    case 10:
      return { type: "raw", bytes: draw.pick(rawFrames) };
    case 11:
      return unanswered(
        JSON.stringify({ ...frame(), filler: "x".repeat(draw.pick([9_000, 700_000])) }),
      );
    default: {
      // A storm of joining and leaving.
      const session = sessionIn(draw);
      const storm = Array.from({ length: 40 }, (_, at) => ({
        ...frame(),
        type: at % 2 === 0 ? "join" : "leave",
        session,
        lastSeq: 0,
      }));
      return whole(storm, true);
    }
  }
}

const rawFrames: readonly Buffer[] = [
  // Not masked, which a client's must be.
  Buffer.from([0x81, 0x02, 0x68, 0x69]),
  // Reserved bits, reserved opcodes.
  Buffer.from([0xf1, 0x80, 1, 2, 3, 4]),
  Buffer.from([0x83, 0x80, 1, 2, 3, 4]),
  // A length of 2^63 - 1.
  Buffer.from([0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]),
  // A ping that is too long, and a close with a code that may not be sent.
  Buffer.from([0x89, 0xfe, 0x00, 0x80, 1, 2, 3, 4]),
  Buffer.from([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xed]),
  // A part of a message that has no beginning, and text that is no UTF-8.
  Buffer.from([0x80, 0x80, 1, 2, 3, 4]),
  Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28]),
  Buffer.from("GET / HTTP/1.1\r\n\r\n"),
];

const limitMs = 60_000;
const halfMs = 20;

/** Holds a conversation. Returns all that was wrong about it. */
export async function converse(
  { protocols, query, steps, end }: Conversation,
  { url, caller }: { url: string; caller: FuzzCaller },
): Promise<string[]> {
  const socket = new WebSocket(`${url.replace("http", "ws")}/v1/socket${query}`, [...protocols], {
    headers: caller.headers,
    perMessageDeflate: false,
  });
  const received: string[] = [];
  let isClosed = false;
  let refusedWith: number | undefined;
  socket.on("error", () => {});
  const answered = new Set<string>();
  socket.on("message", (data: Buffer) => {
    const text = data.toString();
    received.push(text);
    for (const [, ref] of text.matchAll(/"ref":"(r\d+|last)"/g)) answered.add(ref!);
  });
  const closed = new Promise<void>((resolve) =>
    socket.once("close", () => {
      isClosed = true;
      resolve();
    }),
  );
  socket.once("unexpected-response", (_, answer) => {
    refusedWith = answer.statusCode;
    answer.resume();
    socket.terminate();
  });
  const opened = await within(
    Promise.race([
      new Promise<string>((resolve) => socket.once("open", () => resolve("open"))),
      closed.then(() => "closed"),
    ]),
  );
  if (opened === undefined) return ["a socket was neither opened nor refused"];
  if (opened === "closed")
    return refusedWith !== undefined && refusedWith >= 500 && refusedWith !== 503
      ? [`a socket was refused with ${refusedWith}`]
      : [];

  const refs = new Set<string>();
  const openRefs = () => [...refs].filter((ref) => !answered.has(ref));
  let isBroken = false;
  for (const step of steps) {
    if (isClosed) break;
    // What follows bytes that are no frame may be taken for anything.
    if (step.type === "raw") isBroken = true;
    if (step.type === "text" && !isBroken) for (const ref of step.refs) refs.add(ref);
    sendStep(socket, step);
  }
  const faults: string[] = [];
  if (end === "close" && !isBroken) {
    socket.send(JSON.stringify({ type: "ping", ref: "last" }));
    refs.add("last");
    if (!(await soon(() => isClosed || openRefs().length === 0))) {
      const open = openRefs();
      faults.push(`no answer to the frames ${open.slice(0, 5).join(", ")} (of ${open.length})`);
    }
    socket.close();
  } else if (end === "half") {
    await new Promise((resolve) => setTimeout(resolve, halfMs));
    rawOf(socket)?.end();
  } else socket.terminate();
  if ((await within(closed.then(() => true))) === undefined) faults.push("a socket didn't close");
  // A key that names a user is that user, as with the header.
  const sent = `${JSON.stringify(steps)} ${query.replace("user=", "Flotilla-User: ")}`;
  const failed = received.filter((text) => text.includes('"code":"internal"'));
  return [
    ...faults,
    ...failed.slice(0, 1).map((text) => `a frame failed: ${text.slice(0, 300)}`),
    ...received.flatMap((text) => leaksIn(text, sent, caller)),
  ];
}

function sendStep(socket: WebSocket, step: Step): void {
  if (socket.readyState !== socket.OPEN) return;
  switch (step.type) {
    case "text":
      return socket.send(step.text);
    case "binary":
      return socket.send(step.bytes, { binary: true });
    case "fragments":
      return step.parts.forEach((part, at) =>
        socket.send(part, { fin: at === step.parts.length - 1 }),
      );
    case "raw":
      return void rawOf(socket)?.write(step.bytes);
  }
}

/** The connection below, which `ws` keeps to itself. */
function rawOf(socket: WebSocket): Socket | undefined {
  return (socket as unknown as { _socket?: Socket })._socket;
}

async function soon(condition: () => boolean): Promise<boolean> {
  const untilMs = performance.now() + limitMs;
  while (!condition()) {
    if (performance.now() > untilMs) return false;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  return true;
}

async function within<Value>(work: Promise<Value>): Promise<Value | undefined> {
  let limit: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    limit = setTimeout(() => resolve(undefined), limitMs);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(limit));
}

export function shownConversation({ number, caller, query, steps }: Conversation): string {
  const shown = steps.map((step) =>
    step.type === "text"
      ? step.text.slice(0, 200)
      : step.type === "fragments"
        ? step.parts.join("|")
        : `${step.type} ${step.bytes.toString("hex").slice(0, 80)}`,
  );
  return `conversation ${number} by ${caller} on /v1/socket${query}: ${JSON.stringify(shown).slice(0, 3_000)}`;
}
