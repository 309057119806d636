/**
 * What can happen to processes of durable agents, and to their store. Each of these gives its agents labels
 * of its own, and adds what it did to the evidence.
 */
import { between, type Random } from "../../../src/base/random.ts";
import type { PostgresServer } from "../../postgres/server.ts";
import type { PodProcess } from "../pod-handle.ts";
import { pauseFor, until } from "../until.ts";
import { type AgentScene, type AgentsGiven, attemptOver, fleetMs } from "./agents.ts";
import { type AgentEvidence, placesOf } from "./checkers.ts";

const clean = "clean";

/** Collects evidence while faults go by. */
export async function openEvidence(scene: AgentScene) {
  await scene.enqueue([clean]);
  const undisturbed = await scene.start();
  await scene.ended();
  await undisturbed.terminate();
  const lost = new Map<string, number>();
  const takeovers: { pod: number; stored: ReadonlySet<string> }[] = [];
  /** What speaks against a promise, and that no report of an agent shows. */
  const violations: string[] = [];
  return {
    scene,
    lost,
    violations,
    places: placesOf(scene.reports(), clean),
    /** Starts a process that is expected to begin nothing that is stored by now. */
    async takeOver(given?: AgentsGiven): Promise<PodProcess> {
      const stored = await scene.stored();
      const pod = await scene.start(given);
      takeovers.push({ pod: pod.pid, stored });
      return pod;
    },
    gathered: async (): Promise<AgentEvidence> => ({
      clean,
      lost,
      takeovers,
      ended: await scene.ended(),
      reports: scene.reports(),
    }),
  };
}

export type Gathering = Awaited<ReturnType<typeof openEvidence>>;

/** Enqueues an agent for each place, which may lose its process so often. */
async function agentFor(
  { scene, lost }: Gathering,
  name: string,
  places: readonly string[],
  mayLose: number,
): Promise<Record<string, string>> {
  const stops = Object.fromEntries(places.map((place, at) => [`${name} ${at}`, place]));
  for (const label of Object.keys(stops)) lost.set(label, mayLose);
  await scene.enqueue(Object.keys(stops));
  return stops;
}

/** Waits until every agent that hasn't ended stands at its place in this process. */
async function allStand(
  { scene }: Gathering,
  pod: PodProcess,
  stops: Readonly<Record<string, string>>,
): Promise<void> {
  await until(
    "each agent stands at its place, or has ended",
    async () => {
      const standing = scene
        .reports()
        .filter((each) => each.pod === pod.pid && stops[each.label] === each.place);
      const labels = new Set(standing.map(({ label }) => label));
      if (labels.size === Object.keys(stops).length) return true;
      const open = await scene.openLabels();
      return [...open].every((label) => labels.has(label));
    },
    fleetMs,
  );
}

/** The process is killed while agents stand at every place there is. */
export async function killAtEveryPlace(gathering: Gathering): Promise<void> {
  const stops = await agentFor(gathering, "killed", gathering.places, 1);
  const first = await gathering.takeOver({ stops });
  await allStand(gathering, first, stops);
  await gathering.scene.settled();
  await first.kill();
  const second = await gathering.takeOver();
  await gathering.scene.ended();
  await second.terminate();
}

/** So it is, and then the next one, at any other place. */
export async function killTwice(gathering: Gathering, random: Random): Promise<void> {
  const { places, scene } = gathering;
  const stops = await agentFor(gathering, "killed twice", places, 2);
  const first = await gathering.takeOver({ stops });
  await allStand(gathering, first, stops);
  await scene.settled();
  await first.kill();
  const later = Object.fromEntries(
    Object.keys(stops).map((label) => [label, places[between(random, 0, places.length - 1)]!]),
  );
  const second = await gathering.takeOver({ stops: later });
  await allStand(gathering, second, later);
  await scene.settled();
  await second.kill();
  const third = await gathering.takeOver();
  await scene.ended();
  await third.terminate();
}

/** The process is killed again and again, at any moment. */
export async function killAtAnyMoment(
  gathering: Gathering,
  random: Random,
  { kills, agents }: { kills: number; agents: number },
): Promise<void> {
  const { scene, lost } = gathering;
  const labels = Array.from({ length: agents }, (_, at) => `at any moment ${at}`);
  for (const label of labels) lost.set(label, kills);
  await scene.enqueue(labels);
  for (let kill = 0; kill < kills; kill++) {
    // An agent that loses four processes without storing a step is given up, so that each gets on a little.
    const aim = scene.reports().length + between(random, 12, 60);
    const pod = await gathering.takeOver();
    await until(
      "it goes on",
      async () => scene.reports().length >= aim || !(await scene.hasOpen()),
    );
    await pod.kill();
  }
  const last = await gathering.takeOver();
  await scene.ended();
  await last.terminate();
}

/**
 * The process stands still for longer than a pod may be silent, and wakes when another has done its work:
 * nothing that it still does is stored.
 */
export async function pauseAtEveryPlace(gathering: Gathering): Promise<void> {
  const { scene, places, violations } = gathering;
  const stops = await agentFor(gathering, "paused", places, 1);
  const paused = await gathering.takeOver({ stops });
  await allStand(gathering, paused, stops);
  await scene.settled();
  await paused.pauseOutsideWrites();
  const other = await gathering.takeOver();
  await scene.ended();
  const before = await scene.rows();
  paused.open("stops");
  paused.resume();
  await until(
    "the attempts of the paused process are over",
    () => {
      const over = scene
        .reports()
        .filter(({ pod, place }) => pod === paused.pid && place === attemptOver);
      return over.length >= places.length;
    },
    fleetMs,
  );
  // What it still sends is sent before it ends.
  await paused.terminate();
  if ((await scene.rows()) !== before) {
    violations.push("a process that was paused has changed what another had stored");
  }
  await other.terminate();
}

/** Processes of two releases take turns, each told to stop while agents are under way: no call is repeated. */
export async function roll(
  gathering: Gathering,
  random: Random,
  { deploys, agents }: { deploys: number; agents: number },
): Promise<void> {
  const { scene, lost } = gathering;
  const labels = Array.from({ length: agents }, (_, at) => `rolled ${at}`);
  for (const label of labels) lost.set(label, 0);
  const paceMs = 40;
  let pod = await gathering.takeOver({ paceMs, release: 1 });
  const each = Math.ceil(agents / (deploys + 1));
  for (let deploy = 0; deploy < deploys; deploy++) {
    // Both run for a while, as in a deploy.
    const next = await gathering.takeOver({ paceMs, release: deploy % 2 === 0 ? 2 : 1 });
    const told = scene.reports().length;
    await scene.enqueue(labels.slice(deploy * each, (deploy + 1) * each));
    const aim = told + between(random, 1, 25 * each);
    await until(
      "agents are under way",
      async () => scene.reports().length >= aim || !(await scene.hasOpen()),
    );
    await pod.terminate();
    pod = next;
  }
  await scene.enqueue(labels.slice(deploys * each));
  await scene.ended();
  await pod.terminate();
}

/**
 * The server is killed while agents stand at every place there is; their steps end while it is away, and it
 * comes back. The only process there is loses nothing, so that nothing is repeated.
 */
export async function killServerAtEveryPlace(
  gathering: Gathering,
  random: Random,
  server: PostgresServer,
): Promise<void> {
  const { scene, places } = gathering;
  const stops = await agentFor(gathering, "without a server", places, 0);
  const pod = await gathering.takeOver({ stops });
  await allStand(gathering, pod, stops);
  await server.kill(between(random, 0, 1) === 0 ? "SIGKILL" : "SIGQUIT");
  pod.open("stops");
  // Sometimes for longer than a pod may be silent.
  await pauseFor(between(random, 0, 3_000));
  await server.start();
  await scene.ended();
  await pod.terminate();
}

/** The server is killed again and again while agents are under way, in the middle of commits too. */
export async function killServerAtAnyMoment(
  gathering: Gathering,
  random: Random,
  server: PostgresServer,
  { kills, agents }: { kills: number; agents: number },
): Promise<void> {
  const { scene, lost } = gathering;
  const labels = Array.from({ length: agents }, (_, at) => `with many servers ${at}`);
  for (const label of labels) lost.set(label, 0);
  await scene.enqueue(labels);
  const pod = await gathering.takeOver({ paceMs: 20 });
  for (let kill = 0; kill < kills; kill++) {
    const aim = scene.reports().length + between(random, 1, 10 * agents);
    await until(
      "agents are under way",
      async () => scene.reports().length >= aim || !(await scene.hasOpen()),
    );
    await server.kill(between(random, 0, 1) === 0 ? "SIGKILL" : "SIGQUIT");
    await pauseFor(between(random, 0, 1_500));
    await server.start();
  }
  await scene.ended();
  await pod.terminate();
}
