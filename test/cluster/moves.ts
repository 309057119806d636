import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { between, fraction, type Random } from "../../src/base/random.ts";
import { start } from "../command.ts";
import { pauseFor } from "../crash/until.ts";
import { type Cluster, namespace } from "./cluster.ts";

/** The logs of a cluster on their way to NATS, back, and there again, while anything else is done to it. */
export type Moves = {
  /** What hasn't happened so far, and should. */
  lacks(): string[];
  /** Has the logs on NATS in the end. Gives how often they have arrived where, and movers were killed. */
  stop(): Promise<Readonly<Record<string, number>>>;
};

type Place = "nats" | "postgres";

const killShare = 0.4;
const endMs = 180_000;

/** Moves them by the command, as an operator does: again, where it ends in vain or is killed. */
export function keepMoving(
  { nats, fleet }: Cluster,
  { random, say }: { random: Random; say: (line: string) => void },
): Moves {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-moves-"));
  const monitor = nats.servers.map(({ monitorUrl }) => monitorUrl);
  const at = { servers: nats.urls, namespace, use: "bus", monitor };
  const config = JSON.stringify({ use: [], store: fleet.store, nats: at });
  writeFileSync(join(folder, "flotilla.config.mjs"), `export default ${config};`);
  const counts = { movedToNats: 0, movedBack: 0, moversKilled: 0, movesInVain: 0 };

  const tryMove = async (to: Place, mayDie: boolean): Promise<boolean> => {
    const args = ["promote", "--config", "flotilla.config.mjs", "--to", to, "--json"];
    const { child, ended, output } = start(args, { cwd: folder });
    const dies = mayDie && fraction(random) < killShare;
    const kill = async () => {
      // Starting takes most of a second; a move one or two.
      await pauseFor(between(random, 700, 4_000));
      if (child.exitCode === null && child.kill("SIGKILL")) counts.moversKilled++;
    };
    const [{ code }] = await Promise.all([ended, dies && kill()]);
    if (code === 0) {
      counts[to === "nats" ? "movedToNats" : "movedBack"]++;
      say(`the logs are on ${to}`);
      return true;
    }
    if (code !== "SIGKILL") {
      counts.movesInVain++;
      say(`a move to ${to} ended in vain: ${output.stderr.trim().split("\n").at(-1)}`);
    }
    return false;
  };
  const move = async (to: Place, isOver: () => boolean, mayDie = true): Promise<boolean> => {
    while (!isOver()) {
      if (await tryMove(to, mayDie)) return true;
      await pauseFor(between(random, 200, 1_500));
    }
    return false;
  };

  let stopped = false;
  const moving = (async () => {
    let to: Place = "nats";
    while (!stopped) {
      await pauseFor(between(random, 1_000, 8_000));
      if (await move(to, () => stopped)) to = to === "nats" ? "postgres" : "nats";
    }
  })();
  // The storm may have failed before it is waited for.
  moving.catch(() => {});
  return {
    lacks: () => [
      ...(counts.movedToNats > 0 ? [] : ["a move of the logs to NATS"]),
      ...(counts.movedBack > 0 ? [] : ["a move of the logs back to Postgres"]),
      ...(counts.moversKilled > 0 ? [] : ["a killed move"]),
    ],
    async stop() {
      stopped = true;
      await moving;
      const startedMs = performance.now();
      const isOver = () => performance.now() - startedMs > endMs;
      if (!(await move("nats", isOver, false)))
        throw new Error("the logs can't be moved in the end");
      rmSync(folder, { recursive: true, force: true });
      return counts;
    },
  };
}
