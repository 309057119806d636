import type { Command } from "commander";
import { FlotillaError } from "../../base/errors.ts";
import { nearest } from "../../base/options.ts";
import type { Workable } from "../../runtime/handlers.ts";
import { onTarget } from "../connect.ts";
import { type TargetFlags, withJson, withTarget } from "../flags.ts";
import { oneLine, print, printJson, printNotice } from "../output.ts";
import type { Operations } from "../remote.ts";
import { loadHandlers } from "../settings.ts";
import { warnNoWorker } from "../why.ts";
import {
  type NewTaskFlags,
  parseInput,
  traceOfCaller,
  type WaitFlags,
  withTaskOptions,
  withWait,
} from "../task-flags.ts";
import type { TaskContract } from "../../tasks/model.ts";

type Flags = TargetFlags & NewTaskFlags & WaitFlags & { json?: true; file?: string };

export function enqueueCommand(program: Command): void {
  const command = withJson(
    withTarget(
      program.command("enqueue [name] [json]").description("store a task, or a file of tasks"),
    ),
  ).option(
    "--file <file>",
    "store the rows of a file, one JSON object per line; - is standard input",
  );
  withWait(withTaskOptions(command, "task"))
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla enqueue mail '{"to":"ada"}'
  $ cat input.json | flotilla enqueue mail -
  $ flotilla enqueue summarize '{"url":"https://example.com"}' --key example --wait
  $ flotilla enqueue --file rows.ndjson

A row of a file is { "name": …, "input": …, "options": { "key": …, "priority": … } }. The command
line fills in what it leaves out. Rows with keys are stored once, however often the file is sent.
A row with the name of a flow starts a run of it, as \`flotilla runs start\` does.`,
    )
    .action(enqueue);
}

async function enqueue(
  name: string | undefined,
  payload: string | undefined,
  flags: Flags,
): Promise<void> {
  if (flags.file !== undefined) return fromFile(flags.file, name, payload, flags);
  if (name === undefined) {
    throw new FlotillaError(
      "invalid_option",
      "the task's name is missing: `flotilla enqueue mail`, or pass `--file rows.ndjson`",
    );
  }
  const { json, wait, timeoutMs, url, config, store, file: _, ...options } = flags;
  const input = await parseInput(payload);
  // The config's handler has the schema, so that an invalid payload is refused here.
  const { workables, maxPayloadBytes } = await loadHandlers(flags);
  const task: TaskContract = workables.find((handler) => handler.name === name) ?? {
    name,
    input: undefined,
    output: undefined,
  };
  if (task.isFlow) {
    throw new FlotillaError(
      "invalid_option",
      `${name} is a flow: use \`flotilla runs start ${name}\``,
    );
  }
  if (!json) hintAt(name, workables);
  const work = async (flotilla: Operations): Promise<void> => {
    const trace = traceOfCaller();
    const { taskId, created } = await flotilla.enqueue(task, input, { ...options, trace });
    if (!json) print(oneLine(taskId, 100));
    await warnNoWorker(flotilla, [name]);
    if (!wait) {
      if (json) printJson({ taskId, created });
      return;
    }
    const result = await flotilla.waitFor(taskId, {
      ...(timeoutMs !== undefined && { timeoutMs }),
    });
    printJson(json ? { taskId, created, result } : result);
  };
  await onTarget({ url, config, store }, work, { maxPayloadBytes });
}

async function fromFile(
  file: string,
  name: string | undefined,
  payload: string | undefined,
  flags: Flags,
): Promise<void> {
  const conflicting =
    payload !== undefined ? "a payload" : flags.key !== undefined ? "--key" : undefined;
  if (conflicting !== undefined || flags.wait) {
    const what = conflicting ?? "--wait";
    throw new FlotillaError(
      "invalid_option",
      `${what} is for a single task and can't be combined with --file`,
    );
  }
  const { json, wait: _, timeoutMs: __, url, config, store, file: ___, ...options } = flags;
  const { workables, maxPayloadBytes } = await loadHandlers(flags);
  const { enqueueFile } = await import("./enqueue-file.ts");
  const work = (flotilla: Operations) =>
    enqueueFile(flotilla, {
      file,
      json: json ?? false,
      byDefault: { ...(name !== undefined && { name }), options },
      use: workables,
      maxPayloadBytes,
      trace: traceOfCaller(),
    });
  await onTarget({ url, config, store }, work, { maxPayloadBytes });
}

/** An unknown name is stored all the same: its handler may be in another program. */
function hintAt(name: string, use: readonly Workable[]): void {
  const names = use.map((handler) => handler.name);
  const meant = names.includes(name) ? undefined : nearest(name, names);
  if (meant === undefined) return;
  const doubt = `the config has no handler "${name}", did you mean "${meant}"?`;
  printNotice(`${doubt} The task is enqueued anyway`);
}
