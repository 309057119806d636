import process from "node:process";
import type { Durability } from "../../store/database.ts";
import { placeOf, type Store } from "../../store/open.ts";
import { type Check, fail, ok } from "./check.ts";
import { examineFile } from "./sqlite-file.ts";
import { examineServer, type ServerLimits } from "./postgres.ts";

const nodeNeeded = [22, 18] as const;

/** Looks at everything that could keep Flotilla from working. Changes nothing. */
export async function examine(
  store: Store,
  durability: Durability,
  limits?: Partial<ServerLimits>,
): Promise<Check[]> {
  const place = placeOf(store);
  const checks =
    place.kind === "sqlite"
      ? await examineFile(place.path, durability)
      : await examineServer(place.store, durability, limits);
  return [nodeCheck(), ...checks];
}

function nodeCheck(): Check {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const [needMajor, needMinor] = nodeNeeded;
  const enough = major > needMajor || (major === needMajor && minor >= needMinor);
  return enough
    ? ok("node", process.versions.node)
    : fail("node", `${process.versions.node}, and ${nodeNeeded.join(".")} or newer is needed`);
}
