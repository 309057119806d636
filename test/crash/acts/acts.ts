/** Acts of an operator, each on a thing of its own, and how to tell how often each was done. */
import type { Fleet } from "../fleet.ts";

/** One request of an operator, which is sent until it is answered. */
export type SentAct = {
  readonly actId: string;
  readonly method: "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly body?: object;
  /** The statuses that end it. */
  readonly done: readonly number[];
  /** What it has changed, by now. */
  readonly effects: (fleet: Fleet) => Promise<number>;
  /** Once, or as many as its entry counts. */
  readonly wanted: number | "counted";
};

export const discardedTogether = 900;

const error = JSON.stringify({ code: "handler_failed", message: "no such user 7" });

/** One act of each kind, with what it is done to. `number` tells rounds apart. */
export async function makeActs(fleet: Fleet, number: number): Promise<SentAct[]> {
  const { sql, flotilla } = fleet;
  const id = (kind: string) => `${kind}-${number}`;
  const count = async (text: string, ...values: string[]) => {
    const [row] = await sql(`select count(*) as found from ${text}`, ...values);
    return Number(row!["found"]);
  };
  const insert = (taskId: string, name: string, status: string) =>
    sql(
      "insert into flotilla_task (task_id, name, status, error) values (?, ?, ?, ?)",
      taskId,
      name,
      status,
      status === "failed" ? error : null,
    );
  await insert(id("cancel"), "idle", "pending");
  await insert(id("signal"), "idle", "pending");
  await insert(id("retry"), "idle", "failed");
  await insert(id("redriven"), id("redrive"), "failed");
  await sql(
    `insert into flotilla_task (task_id, name, status, error)
     with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${discardedTogether})
     select '${id("discard")}-' || n, '${id("discard")}', 'failed', ? from numbers`,
    error,
  );
  await sql("insert into flotilla_throttle (name, bound) values (?, 5)", id("api"));
  await flotilla.schedules.put(id("fire"), { name: id("fired"), pattern: "0 0 1 1 *" });
  const { key } = await flotilla.keys.create({ name: id("old"), role: "viewer" });

  /** How often a task was brought from one status to another, in the words of the store's triggers. */
  const changes = (taskId: string, from: string, to: string) => () =>
    count("witness where task = ? and old_status = ? and new_status = ?", taskId, from, to);
  /** How often rows of a table were changed as this act does, noted by triggers. */
  const noted = (what: string) => () => count("noted where what = ? and action is null", what);
  const once = { done: [200, 201, 202], wanted: 1 } as const;
  const acts: Omit<SentAct, "actId">[] = [
    {
      method: "POST",
      path: `/v1/tasks/${id("cancel")}/cancel`,
      effects: changes(id("cancel"), "pending", "cancelled"),
      ...once,
    },
    {
      method: "POST",
      path: `/v1/tasks/${id("retry")}/retry`,
      effects: changes(id("retry"), "failed", "pending"),
      ...once,
    },
    {
      method: "POST",
      path: `/v1/tasks/${id("signal")}/signals`,
      body: { name: "go" },
      effects: () => count("flotilla_task_signal where task_id = ?", id("signal")),
      ...once,
    },
    {
      method: "POST",
      path: "/v1/pause",
      body: { name: id("paused"), reason: "repairs" },
      effects: noted(`task_pause ${id("paused")}`),
      ...once,
    },
    {
      method: "PUT",
      path: "/v1/limits",
      body: { scope: `tenant/${id("limited")}`, limit: 5 },
      effects: noted(`task_limit tenant/${id("limited")}`),
      ...once,
    },
    {
      method: "POST",
      path: `/v1/schedules/${id("fire")}/fire`,
      effects: () => count("flotilla_task where name = ?", id("fired")),
      ...once,
    },
    {
      method: "POST",
      path: "/v1/dlq/redrives",
      body: { name: id("redrive") },
      effects: () => count("flotilla_redrive where filter like ?", `%"${id("redrive")}"%`),
      ...once,
    },
    {
      method: "POST",
      path: "/v1/dlq/discard",
      body: { name: id("discard") },
      effects: () => count("flotilla_task where name = ? and status = 'cancelled'", id("discard")),
      done: [200],
      wanted: "counted",
    },
    {
      method: "POST",
      path: "/v1/keys",
      body: { name: id("key"), role: "viewer" },
      effects: () => count("flotilla_api_key where name = ?", id("key")),
      // Its text is shown once, and is lost with the answer.
      done: [201, 409],
      wanted: 1,
    },
    {
      method: "DELETE",
      path: `/v1/keys/${key.keyId}`,
      effects: () => count("noted where what = ?", `api_key ${key.keyId}`).then((all) => all - 1),
      ...once,
    },
    {
      method: "POST",
      path: "/v1/tokens/revocations",
      body: { jti: id("jti") },
      effects: noted(`token_revocation ${id("jti")}`),
      ...once,
    },
    {
      method: "POST",
      path: `/v1/throttles/${id("api")}/pin`,
      body: { limit: 3 },
      effects: noted(`throttle ${id("api")}`),
      ...once,
    },
    {
      method: "POST",
      path: "/v1/agents",
      body: { name: id("agent"), settings: { url: "https://agent.example/chat" } },
      effects: noted(`agent ${id("agent")}`),
      ...once,
    },
  ];
  return acts.map((act, at) => ({ ...act, actId: `act-${number}-${at}` }));
}

/** What is wrong about an act that was answered: its entries, and what it has changed. */
export async function faultsOf(fleet: Fleet, act: SentAct): Promise<string[]> {
  const { actId, path } = act;
  const entries = await fleet.sql(
    "select action, count, outcome from flotilla_audit where act_id = ?",
    actId,
  );
  const effects = await act.effects(fleet);
  const [entry] = entries;
  const name = `${actId} (${act.method} ${path})`;
  if (!entry || entries.length > 1)
    return [`${name} has ${entries.length} entries, and was done ${effects} times`];
  if (act.wanted !== "counted")
    return effects === act.wanted ? [] : [`${name} has an entry, and was done ${effects} times`];
  const isCounted = Number(entry["count"]) === effects && effects > 0;
  // A process that was killed in the middle leaves the entry as it was by then.
  const isEnded = entry["outcome"] === "begun" || effects === discardedTogether;
  return isCounted && isEnded
    ? []
    : [`${name} counts ${entry["count"]}, is ${entry["outcome"]}, and has changed ${effects}`];
}
