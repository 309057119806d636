/** A pod that sends messages with tasks when it is told to, and tells what was acknowledged. */
import process from "node:process";
import { agent, type Config, startPod } from "flotilla";
import { silentLogger } from "../../src/base/log.ts";

export type SenderGiven = { store: string; nats?: Config["nats"]; session: string };
export type ToSender = { readonly send: string };
export type FromSender =
  | { readonly ready: string }
  | { readonly acked: string; readonly taskIds: readonly string[] };

const { store, nats, session } = JSON.parse(process.argv[2]!) as SenderGiven;
const tell = (message: FromSender) => void process.send?.(message);
// Without the test that started it, this process would never end.
process.once("disconnect", () => process.exit(1));

const pod = await startPod({
  store,
  // It runs no task itself.
  use: [agent("none", async () => "nothing")],
  heartbeatMs: 200,
  deadAfterMs: 2_000,
  dataDir: false,
  log: silentLogger,
  ...(nats && { nats }),
});
const chat = await pod.sessions.create(null, { sessionId: session, user: "ada" });
process.on("message", ({ send: id }: ToSender) => {
  const tasks = [
    { ref: "first", task: "note", input: { of: id, nth: 1 } },
    { task: "note", input: { of: id, nth: 2 }, after: ["first"] },
  ];
  void chat.send(`message ${id}`, { id, tasks }).then(
    (sent) => tell({ acked: id, taskIds: sent.tasks!.map(({ taskId }) => taskId) }),
    () => {},
  );
});
tell({ ready: pod.podId });
