import { between, type Random } from "../../src/base/random.ts";
import { ownerIn, pauseOwner, pauseRunner } from "../crash/sessions/nemesis.ts";
import { killServer } from "../crash/server-faults.ts";
import { pauseFor } from "../crash/until.ts";
import {
  type Cluster,
  places,
  podNode,
  postgresNode,
  serverNode,
  signalPostgres,
} from "./cluster.ts";

/** What can be done to a cluster. Each is over, and undone, when its promise resolves. */
export type Faults = Readonly<Record<string, () => Promise<void>>>;

export type FaultParts = {
  readonly cluster: Cluster;
  readonly random: Random;
  /** Sessions that clients talk in. */
  readonly sessions: readonly string[];
  /** Makes a session that no other client talks in. */
  readonly quietSession: () => Promise<string>;
};

const hourMs = 3_600_000;
/** The one for which a session is made, under an id of the test's. */
export const makesSessions = "pause a pod in the middle of an answer";

/** What is done to processes and disks: one at a time, because each leaves all processes running. */
export function processFaults(parts: FaultParts): Faults {
  const { cluster, random, sessions, quietSession } = parts;
  const { fleet, nats, postgres, disks } = cluster;
  const hold = (lowMs: number, highMs: number) => pauseFor(between(random, lowMs, highMs));
  const one = () => [draw(random, places)];
  const two = () => allBut(draw(random, places));

  const kill = async (pods: readonly number[], servers: readonly number[]): Promise<void> => {
    await Promise.all([
      ...pods.map((at) => cluster.pods[at]!.kill()),
      ...servers.map((nth) => nats.servers[nth]!.kill()),
    ]);
    await hold(200, 1_500);
    await Promise.all([...servers.map(cluster.startServer), ...pods.map(cluster.startPod)]);
  };

  const pause = async (pods: readonly number[], servers: readonly number[]): Promise<void> => {
    await Promise.all(pods.map((at) => cluster.pods[at]!.pause()));
    for (const nth of servers) nats.servers[nth]!.signal("SIGSTOP");
    await hold(1_000, 3_000);
    for (const nth of servers) nats.servers[nth]!.signal("SIGCONT");
    for (const at of pods) cluster.pods[at]!.resume();
  };

  const restart = async (nth: number): Promise<void> => {
    await nats.servers[nth]!.kill("SIGTERM");
    await cluster.startServer(nth);
  };

  /** A stream of a server that met a full disk stands still until that is started again. */
  const fill = async (servers: readonly number[]): Promise<void> => {
    for (const nth of servers) disks[nth]!.fill();
    await hold(1_000, 2_000);
    for (const nth of servers) disks[nth]!.free();
    for (const nth of servers) await restart(nth);
  };

  const onDisks: Faults = {
    "fill the disk of a server": () => fill(one()),
    "fill the disks of two servers": () => fill(two()),
  };

  return {
    "kill a pod": () => kill(one(), []),
    "pause a pod": async () =>
      pauseOwner({ fleet }, await ownerIn({ fleet, sessions, random }), false),
    [makesSessions]: async () => pauseRunner({ fleet }, await quietSession(), false),
    "kill a server": () => kill([], one()),
    "pause a server": () => pause([], one()),
    "kill a pod and a server": () => kill(one(), one()),
    "pause a pod and a server": () => pause(one(), one()),
    "kill two servers": () => kill([], two()),
    "pause two servers": () => pause([], two()),
    "kill all pods and servers": () => kill(places, places),
    "pause all pods and servers": () => pause(places, places),
    ...(disks.length > 0 && onDisks),
    // As a disk that stands still again and again is seen from outside.
    "slow the disk of a server": async () => {
      const server = nats.servers[draw(random, places)]!;
      for (let left = 15; left > 0; left--) {
        server.signal("SIGSTOP");
        await hold(40, 120);
        server.signal("SIGCONT");
        await hold(20, 60);
      }
    },
    "kill Postgres": () => killServer(postgres, random),
    "pause Postgres": async () => {
      signalPostgres(postgres, "SIGSTOP");
      await hold(500, 2_500);
      signalPostgres(postgres, "SIGCONT");
    },
    "restart the pods one by one": async () => {
      for (const at of shuffled(random, places)) {
        await cluster.pods[at]!.terminate();
        await cluster.startPod(at);
      }
    },
    "restart the servers one by one": async () => {
      for (const nth of shuffled(random, places)) await restart(nth);
    },
  };
}

/** What is done to the network and to clocks, while anything may be done to processes. */
export function surroundingFaults({
  cluster,
  random,
}: Pick<FaultParts, "cluster" | "random">): Faults {
  const { network, clocks } = cluster;
  const hold = () => pauseFor(between(random, 800, 2_500));
  const some = () => {
    const drawn = shuffled(random, places);
    return drawn.slice(0, between(random, 1, drawn.length));
  };

  const split = async (
    ones: readonly string[],
    others: readonly string[],
    ways: readonly ("there" | "back")[],
  ): Promise<void> => {
    const pairs = ones.flatMap((one) => others.map((other) => [one, other] as const));
    const cuts = pairs.flatMap(([one, other]) => [
      ...(ways.includes("there") ? [network.cut(one, other)] : []),
      ...(ways.includes("back") ? [network.cut(other, one)] : []),
    ]);
    await Promise.all(cuts);
    await hold();
    await network.heal();
  };
  const both = ["there", "back"] as const;
  const oneWay = () => [draw(random, both)];
  const pods = () => some().map(podNode);
  const servers = () => some().map(serverNode);
  /** One server and the other two. */
  const apart = (): [string[], string[]] => {
    const alone = draw(random, places);
    return [[serverNode(alone)], allBut(alone).map(serverNode)];
  };

  const step = async (clock: { set(offsetMs: number): void }): Promise<void> => {
    clock.set(between(random, 0, 1) === 0 ? hourMs : -hourMs);
    await hold();
    clock.set(between(random, -5_000, 5_000));
    await hold();
    clock.set(0);
  };

  return {
    "cut pods from servers": () => split(pods(), servers(), both),
    "cut pods from servers, one way": () => split(pods(), servers(), oneWay()),
    "cut pods from Postgres": () => split(pods(), [postgresNode], both),
    "cut pods from Postgres, one way": () => split(pods(), [postgresNode], oneWay()),
    "cut a server from the others": () => split(...apart(), both),
    "cut a server from the others, one way": () => split(...apart(), oneWay()),
    "lose 5 % of all packets": async () => {
      await network.lose(5);
      await hold();
      await network.heal();
    },
    "step the clock of a pod": () => step(draw(random, clocks.pods)),
    "step the clock of Postgres": () => step(clocks.postgres),
  };
}

/** Does each of them once in a drawn order, then any of them until it is to end. Gives what was done. */
export async function fire(
  faults: Faults,
  { random, isOver, say }: { random: Random; isOver: () => boolean; say: (line: string) => void },
): Promise<string[]> {
  const names = Object.keys(faults);
  const first = shuffled(random, names);
  const fired: string[] = [];
  for (let nth = 0; nth < first.length || !isOver(); nth++) {
    const name = first[nth] ?? draw(random, names);
    say(name);
    await faults[name]!();
    fired.push(name);
    // Once each has fired, processes get time to come back.
    await (nth < first.length
      ? pauseFor(between(random, 100, 700))
      : pauseFor(between(random, 1_000, 3_000)));
  }
  return fired;
}

function draw<Item>(random: Random, items: readonly Item[]): Item {
  return items[between(random, 0, items.length - 1)]!;
}

function allBut(place: number): number[] {
  return places.filter((each) => each !== place);
}

function shuffled<Item>(random: Random, items: readonly Item[]): Item[] {
  const left = [...items];
  return items.map(() => left.splice(between(random, 0, left.length - 1), 1)[0]!);
}
