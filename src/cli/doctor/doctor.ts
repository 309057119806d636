import process from "node:process";
import type { Durability } from "../../store/database.ts";
import { locateStore, type Store } from "../../store/open.ts";
import { type Check, failed, ok } from "./check.ts";
import type { SecretsOptions } from "./fleet.ts";
import { checkSqliteFile } from "./sqlite-file.ts";
import { checkPostgres, type ServerLimits } from "./postgres.ts";

const nodeNeeded = [22, 18] as const;

/** Checks everything that could keep Flotilla from working. Changes nothing. */
export async function runDoctor(
  store: Store,
  durability: Durability,
  options: SecretsOptions & Partial<ServerLimits> = {},
): Promise<Check[]> {
  const location = locateStore(store);
  const checks =
    location.kind === "sqlite"
      ? await checkSqliteFile(location.path, durability, options)
      : await checkPostgres(location.store, durability, options);
  return [nodeCheck(), ...checks];
}

function nodeCheck(): Check {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const [needMajor, needMinor] = nodeNeeded;
  const enough = major > needMajor || (major === needMajor && minor >= needMinor);
  return enough
    ? ok("node", process.versions.node)
    : failed("node", `${process.versions.node}, and ${nodeNeeded.join(".")} or newer is needed`);
}
