import type { PlainConnection } from "../../store/postgres/inspect.ts";
import { openPlain } from "../../store/postgres/inspect.ts";
import type { PostgresStore } from "../../store/postgres/config.ts";
import { type Check, fail, ok, warn } from "./check.ts";

/**
 * Whether something keeps connections between us and the server, and in which mode. A pooler makes
 * up the number of the session's process; one per transaction lets two sessions share a process.
 */
export async function lookAtPooler(first: PlainConnection, store: PostgresStore): Promise<Check> {
  const told = store.pooler;
  const process = await processOf(first);
  if (first.processId === process) {
    return told === "transaction" || told === "session"
      ? warn("pooler", `none, and the store says pooler=${told}: leave that out`)
      : ok("pooler", "none, as far as can be told");
  }
  const second = await openPlain(store);
  try {
    const shared = (await processOf(second)) === process || (await processOf(first)) !== process;
    if (!shared) {
      return told === "session"
        ? ok("pooler", "there is one, which keeps sessions as far as can be told")
        : ok(
            "pooler",
            "there is one, which keeps sessions as far as can be told; with pooler=session in the URL hints would be listened for",
          );
    }
    if (!(await allowsTransactions(second))) {
      return fail(
        "pooler",
        "there is one that deals out connections per statement: it must be per transaction or session",
      );
    }
    return told === "session" || told === "none"
      ? warn(
          "pooler",
          `there is one that deals out connections per transaction, and the store says pooler=${told}: hints get lost`,
        )
      : ok("pooler", "there is one, per transaction: new tasks are found by polling, not by hints");
  } finally {
    await second.end();
  }
}

async function processOf({ ask }: PlainConnection): Promise<number> {
  const [row] = await ask("select pg_backend_pid() as pid");
  return row!["pid"];
}

async function allowsTransactions({ ask }: PlainConnection): Promise<boolean> {
  try {
    await ask("begin");
    await ask("commit");
    return true;
  } catch {
    return false;
  }
}
