import { createServer, type Server, type Socket, connect } from "node:net";
import { once } from "node:events";
import { type Direction, type Flow, type Link, linkOf } from "./chaos-link.ts";
import { freePort } from "../../free-ports.ts";
import { createStatementCounter } from "./frames.ts";

export type ChaosProxy = {
  readonly port: number;
  /** The same URL, by way of this proxy. */
  through(url: string): string;
  /** How bytes flow on all connections, those that are there and those that come. */
  flow(change: Partial<Record<Direction, Flow>>): void;
  /** Closes all connections; with `midFrame`, each in the middle of the next bytes that way. */
  cut(how?: { midFrame: Direction }): void;
  /** The present connections fall silent for good, and neither side is told. New ones work. */
  halfOpen(): void;
  /**
   * The next time that a client sends what this matches, the server gets it and does it, and then
   * the answer is dropped and the connection closed. Resolves when that has happened.
   */
  loseAnswer(matches: (sent: string) => boolean): Promise<void>;
  /**
   * The next time that a client sends what this matches, that connection is held up: what is sent from
   * there on isn't passed to the server, or what is answered isn't passed back. Resolves when it has
   * happened, with a function that lets it go.
   */
  hold(way: Direction, matches: (sent: string) => boolean): Promise<() => void>;
  /** Connections that come from now on are to another server; those that are there are closed. */
  turnTo(url: string): void;
  /** Closes all connections, and takes no new ones until `accept`. */
  refuse(): Promise<void>;
  accept(): Promise<void>;
  counts(): Counts;
  close(): Promise<void>;
};

export type Counts = {
  /** Connections that were ever made, and those that are there. */
  readonly made: number;
  readonly open: number;
  readonly bytes: Readonly<Record<Direction, number>>;
  readonly statements: number;
};

type Waiting = { matches: (sent: string) => boolean; catch: (link: Link) => void };

/** Stands between pods and a server, and does to their connections what networks do. */
export async function startChaosProxy(target: string): Promise<ChaosProxy> {
  let { hostname, port: targetPort } = new URL(target);
  const links = new Set<Link>();
  const flows: Record<Direction, Flow> = { toServer: "pass", toClient: "pass" };
  const bytes = { toServer: 0, toClient: 0 };
  let made = 0;
  let statements = 0;
  let waiting: Waiting | undefined;

  const accepted = (client: Socket) => {
    made++;
    const server = connect({ host: hostname, port: Number(targetPort) });
    const counter = createStatementCounter();
    const link = linkOf(client, server, flows, {
      onBytes(direction, chunk) {
        bytes[direction] += chunk.length;
        if (direction === "toClient") return;
        const before = counter.statements;
        counter.read(chunk);
        statements += counter.statements - before;
        const caught = waiting;
        if (!caught?.matches(chunk.toString("latin1"))) return;
        waiting = undefined;
        caught.catch(link);
      },
      onGone: () => links.delete(link),
    });
    links.add(link);
  };

  // It comes back on the same port, which nobody else may get meanwhile.
  const port = await freePort();
  let listener: Server | undefined;
  const listen = async (): Promise<void> => {
    listener = createServer({ allowHalfOpen: true }, accepted);
    listener.listen(port, "127.0.0.1");
    await once(listener, "listening");
  };
  const deafen = async () => {
    const closing = listener;
    listener = undefined;
    const closed = closing && new Promise((resolve) => closing.close(resolve));
    for (const link of links) link.cut();
    await closed;
  };
  await listen();

  return {
    port,
    through(url) {
      const there = new URL(url);
      there.port = String(port);
      there.hostname = "127.0.0.1";
      return there.href;
    },
    flow(change) {
      Object.assign(flows, change);
      for (const link of links) link.flow(flows);
    },
    cut(how) {
      for (const link of links) link.cut(how?.midFrame);
    },
    halfOpen() {
      for (const link of links)
        link.flow({ toServer: "drop", toClient: "drop" }, { forGood: true });
    },
    loseAnswer: (matches) =>
      new Promise((done) => {
        waiting = { matches, catch: (link) => link.loseAnswer(done) };
      }),
    hold: (way, matches) =>
      new Promise((done) => {
        waiting = { matches, catch: (link) => done(link.hold(way)) };
      }),
    turnTo(url) {
      ({ hostname, port: targetPort } = new URL(url));
      for (const link of links) link.cut();
    },
    refuse: deafen,
    async accept() {
      if (!listener) await listen();
    },
    counts: () => ({ made, open: links.size, bytes: { ...bytes }, statements }),
    close: deafen,
  };
}
