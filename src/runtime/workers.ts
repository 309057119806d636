import type { Flotilla } from "./connect.ts";

/** The names of tasks that some pod would run which is up, by what the pods say of themselves. */
export async function namesWithWorker(
  flotilla: Pick<Flotilla, "pods">,
): Promise<ReadonlySet<string>> {
  const known = new Set<string>();
  for (const { status, metadata } of await flotilla.pods()) {
    const { names } = metadata;
    if (status !== "up" || !Array.isArray(names)) continue;
    for (const name of names) if (typeof name === "string") known.add(name);
  }
  return known;
}
