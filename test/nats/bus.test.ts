import { connect as connectDriver } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { type Logger, silentLogger } from "../../src/base/log.ts";
import { seededRandom } from "../../src/base/random.ts";
import type { Bus } from "../../src/bus/bus.ts";
import { busContract } from "../../src/bus/contract/bus.ts";
import { checkNats } from "../../src/bus/nats/config.ts";
import type { FlotillaError } from "../../src/base/errors.ts";
import { connectNats, type NatsConnection } from "../../src/bus/nats/connection.ts";
import { createNatsBus, type NatsBusOptions } from "../../src/bus/nats/nats-bus.ts";
import { cutIntoPieces, maxPieceBytes } from "../../src/bus/nats/pieces.ts";
import { type NatsServer, startNats, startNatsCluster } from "./server.ts";

const random = seededRandom(1);
const secret = "the secret of the store";
const readSecret = async () => secret;
const timeoutMs = 60_000;

/** Connections and buses of a test, which end with it. */
function createEnds(servers: () => string | readonly string[]) {
  const buses: Bus[] = [];
  const connections: NatsConnection[] = [];
  return {
    async connect(address: string, options: Partial<NatsBusOptions> = {}) {
      const { clock = systemClock, log = silentLogger } = options;
      const settings = checkNats({ servers: servers(), namespace: "tests" });
      const nats = connectNats(settings, { clock: systemClock, random, log });
      connections.push(nats);
      await nats.started;
      const bus = createNatsBus({ address, nats, readSecret, random, ...options, clock, log });
      buses.push(bus);
      // Its subscriptions are known to the server.
      await nats.flush();
      return { bus, nats };
    },
    async close() {
      for (const bus of buses.splice(0)) await bus.close();
      for (const connection of connections.splice(0)) await connection.close();
    },
  };
}

let shared: NatsServer;
busContract({
  name: "on NATS",
  knowsAbsence: true,
  async start() {
    shared = await startNats();
  },
  stop: () => shared.stop(),
  async open(clock) {
    const ends = createEnds(() => shared.url);
    return {
      connect: async (address) => (await ends.connect(address, { clock })).bus,
      remove: ends.close,
    };
  },
});

describe("a bus on NATS", () => {
  let server: NatsServer;
  beforeAll(async () => {
    server = await startNats();
  });
  afterAll(() => server.stop());
  const ends = createEnds(() => server.url);
  afterEach(() => ends.close());

  const collecting = async (address: string, options: Partial<NatsBusOptions> = {}) => {
    const got: unknown[] = [];
    const { bus, nats } = await ends.connect(address, options);
    bus.serve("note", (body) => {
      got.push(body);
      return null;
    });
    return { bus, nats, got };
  };

  test("knows that a process is gone, and that it didn't get the request", async () => {
    const { bus: alice } = await ends.connect("alice");
    const asked = alice.request("gone", "note", "x".repeat(2_000_000), { timeoutMs });
    await expect(asked).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("was not delivered"),
    });
  });

  test("packs what a turn of the event loop sends to a process, in its order", async () => {
    const { bus: alice } = await ends.connect("alice");
    const { bus: bob, got } = await collecting("bob");
    bob.serve("double", (body) => Number(body) * 2);
    const seen: string[] = [];
    const listener = await connectDriver({ servers: server.url });
    listener.subscribe("flotilla.tests.mail.*", {
      callback: (_, { subject }) => void seen.push(subject.split(".").at(-1)!),
    });
    await listener.flush();

    const large = "x".repeat(200_000);
    const doubled = Array.from({ length: 20 }, async (_, nth) => {
      await Promise.resolve();
      alice.send("bob", "note", nth);
      return alice.request("bob", "double", nth, { timeoutMs });
    });
    expect(await Promise.all(doubled)).toEqual(Array.from({ length: 20 }, (_, nth) => nth * 2));
    await listener.flush();
    expect(seen).toEqual(["bob", "alice"]);

    for (const body of [20, large, 21]) alice.send("bob", "note", body);
    await expect.poll(() => got).toEqual([...Array(21).keys(), large, 21]);
    await listener.close();
  });

  test("rejects every request that was packed for a process that is gone", async () => {
    const { bus: alice } = await ends.connect("alice");
    const { bus: bob } = await ends.connect("bob");
    bob.serve("echo", (body) => body);
    const asked = Array.from({ length: 250 }, (_, nth) => [
      alice.request("gone", "echo", nth, { timeoutMs }).catch(({ code }: FlotillaError) => code),
      alice.request("bob", "echo", nth, { timeoutMs }),
    ]);
    const answers = await Promise.all(asked.flat());
    expect(answers).toEqual(asked.flatMap((_, nth) => ["unavailable", nth]));
  });

  test("sends what it was given right before it is closed", async () => {
    const { got } = await collecting("bob");
    const { bus: alice } = await ends.connect("alice");
    alice.send("bob", "note", "the last one");
    await alice.close();
    await expect.poll(() => got).toEqual(["the last one"]);
  });

  test("refuses a message of more than 16 MiB at once", async () => {
    const { bus: alice } = await ends.connect("alice");
    await collecting("bob");
    const asked = alice.request("bob", "note", "x".repeat(17 * 1024 * 1024), { timeoutMs });
    await expect(asked).rejects.toMatchObject({ code: "payload_too_large" });
  });

  test("lets 16 MiB wait at most, and goes on when they have left", async () => {
    const { bus: alice, nats } = await ends.connect("alice");
    const { got } = await collecting("bob");
    const large = "x".repeat(3 * 1024 * 1024);
    const asked = await Promise.allSettled(
      Array.from({ length: 10 }, () => alice.request("bob", "note", large, { timeoutMs })),
    );
    const codes = asked.map((each) =>
      each.status === "rejected" ? (each.reason as { code: string }).code : "taken",
    );
    expect(codes).toEqual([
      ...Array.from({ length: 5 }, () => "taken"),
      ...Array.from({ length: 5 }, () => "overloaded"),
    ]);
    await nats.flush();
    expect(await alice.request("bob", "note", large, { timeoutMs })).toBe(null);
    expect(got).toHaveLength(6);
  });

  test("sends what it was given before it was connected, in its order", async () => {
    const { got } = await collecting("bob");
    const settings = checkNats({ servers: server.url, namespace: "tests" });
    const nats = connectNats(settings, { clock: systemClock, random, log: silentLogger });
    const bus = createNatsBus({ address: "early", nats, readSecret, random, clock: systemClock });
    try {
      for (let nth = 0; nth < 20; nth++) bus.send("bob", "note", nth);
      await expect.poll(() => got.length).toBe(20);
      expect(got).toEqual(Array.from({ length: 20 }, (_, nth) => nth));
    } finally {
      await bus.close();
      await nats.close();
    }
  });

  test("drops what no process of the store has signed, counts it, and goes on", async () => {
    let forged = 0;
    const warned: string[] = [];
    const log: Logger = { ...silentLogger, warn: (_, text) => void warned.push(text ?? "") };
    const { got } = await collecting("bob", { onForged: () => forged++, log });
    const { bus: alice } = await ends.connect("alice");
    const stranger = await connectDriver({ servers: server.url });
    const subject = "flotilla.tests.mail.bob";
    const guessed = { secret: "guessed", address: "bob" };
    const text = '{"topic":"note","body":"forged"}';
    const [toEve] = cutIntoPieces({ secret, address: "eve" }, { sender: "alice", seq: 9, text })!;
    const strays: (string | Uint8Array)[] = [
      "",
      text,
      Buffer.from([0xff, 0xfe, 0x00, 0x0a]),
      Buffer.alloc(maxPieceBytes + 2_048, "\n"),
      cutIntoPieces(guessed, { sender: "alice", seq: 9, text })![0]!,
      toEve!,
    ];
    for (const stray of strays) stranger.publish(subject, stray);
    await stranger.flush();
    await stranger.close();
    expect(await alice.request("bob", "note", "ours", { timeoutMs })).toBe(null);
    expect(got).toEqual(["ours"]);
    expect(forged).toBe(strays.length);
    expect(warned).toEqual([expect.stringContaining("no pod has signed")]);
  });

  test("isn't held up by pieces that never end, or by messages that aren't ours", async () => {
    const { bus: alice } = await ends.connect("alice");
    const { got } = await collecting("bob");
    const stranger = await connectDriver({ servers: server.url });
    const to = { secret, address: "bob" };
    const text = "x".repeat(3 * maxPieceBytes);
    // A server cuts off a receiver that leaves 64 MB unread, and this one is in the same process.
    for (let nth = 0; nth < 60; nth++) {
      const [first] = cutIntoPieces(to, { sender: `endless ${nth}`, seq: 1, text })!;
      stranger.publish("flotilla.tests.mail.bob", first!);
    }
    const [noJson] = cutIntoPieces(to, { sender: "eve", seq: 1, text: "no JSON" })!;
    stranger.publish("flotilla.tests.mail.bob", noJson!);
    // A refusal that nothing asked for.
    stranger.publish("flotilla.tests.mail.alice.1", "x");
    stranger.publish("flotilla.tests.mail.alice.999", "");
    await stranger.flush();
    await stranger.close();
    expect(await alice.request("bob", "note", "ours", { timeoutMs })).toBe(null);
    expect(got).toEqual(["ours"]);
  });

  test("sends nothing that can be read where a codec encodes what is stored", async () => {
    const codec = {
      encode: (plain: string) => `~${Buffer.from(plain).toString("hex")}`,
      decode: (sent: string) => Buffer.from(sent.slice(1), "hex").toString(),
    };
    const seen: string[] = [];
    const stranger = await connectDriver({ servers: server.url });
    const heard = stranger.subscribe("flotilla.>", {
      callback: (_, message) => void seen.push(message.string()),
    });
    await stranger.flush();
    const { got } = await collecting("bob", { text: codec });
    const { bus: alice } = await ends.connect("alice", { text: codec });
    await alice.request("bob", "note", "a secret", { timeoutMs });
    await stranger.flush();
    heard.unsubscribe();
    await stranger.close();
    expect(got).toEqual(["a secret"]);
    expect(seen.length).toBeGreaterThanOrEqual(2);
    expect(seen.join()).not.toContain("a secret");
  });

  test("keeps namespaces apart", async () => {
    const { got } = await collecting("bob");
    const settings = checkNats({ servers: server.url, namespace: "others" });
    const nats = connectNats(settings, { clock: systemClock, random, log: silentLogger });
    await nats.started;
    const bus = createNatsBus({ address: "alice", nats, readSecret, random, clock: systemClock });
    const asked = bus.request("bob", "note", 1, { timeoutMs });
    await expect(asked).rejects.toMatchObject({ code: "unavailable" });
    expect(got).toEqual([]);
    await bus.close();
    await nats.close();
  });
});

describe("a NATS server that is killed and comes back", () => {
  test("is connected to again; meanwhile requests are refused at once, and then they go on", async () => {
    const server = await startNats();
    const ends = createEnds(() => server.url);
    try {
      const { bus: bob } = await ends.connect("bob");
      bob.serve("echo", (body) => body);
      const { bus: alice, nats } = await ends.connect("alice");
      let connections = 0;
      nats.onConnected(() => connections++);
      expect(await alice.request("bob", "echo", 1, { timeoutMs })).toBe(1);
      await server.kill();
      await expect.poll(() => nats.state).toBe("away");
      const asked = alice.request("bob", "echo", 2, { timeoutMs });
      await expect(asked).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringContaining("NATS is away"),
      });
      alice.send("bob", "echo", "lost");
      await server.start();
      await expect.poll(() => connections).toBe(1);
      await expect
        .poll(() => alice.request("bob", "echo", 3, { timeoutMs }).catch(() => undefined))
        .toBe(3);
    } finally {
      await ends.close();
      await server.stop();
    }
  });
});

test("a NATS server that answers no more is noticed, and used again when it does", async () => {
  const server = await startNats();
  const ends = createEnds(() => server.url);
  try {
    const { bus: bob } = await ends.connect("bob");
    bob.serve("echo", (body) => body);
    const { bus: alice, nats } = await ends.connect("alice");
    server.signal("SIGSTOP");
    // It may answer once more before the last of its threads has stopped. The second ping without an answer
    // comes about when the time of the request is up.
    const outcome = () =>
      alice.request("bob", "echo", 1, { timeoutMs: 1_000 }).then(
        () => "answered",
        (error: FlotillaError) => error.code,
      );
    await expect.poll(outcome).toMatch(/^(timeout|unavailable)$/);
    await expect.poll(() => nats.state).toBe("away");
    server.signal("SIGCONT");
    await expect.poll(() => nats.state).toBe("connected");
    await expect
      .poll(() => alice.request("bob", "echo", 2, { timeoutMs }).catch(() => undefined))
      .toBe(2);
  } finally {
    await ends.close();
    await server.stop();
  }
});

test("of a cluster any server will do: when one is killed, its clients go on at another", async () => {
  const cluster = await startNatsCluster({ jetStream: false });
  const ends = createEnds(() => cluster.urls);
  try {
    const buses = await Promise.all(["alice", "bob", "carol"].map((each) => ends.connect(each)));
    for (const { bus } of buses) bus.serve("echo", (body) => body);
    const answers = async () => {
      const asked = buses.flatMap(({ bus }) =>
        buses.map((to) => bus.request(to.bus.address, "echo", bus.address, { timeoutMs: 1_000 })),
      );
      const settled = await Promise.allSettled(asked);
      return settled.filter(({ status }) => status === "fulfilled").length;
    };
    // What one server knows of subscribers is told to the others.
    await expect.poll(answers).toBe(9);
    for (const server of cluster.servers) {
      await server.kill();
      await expect.poll(answers).toBe(9);
      await server.start();
    }
  } finally {
    await ends.close();
    await cluster.stop();
  }
});
