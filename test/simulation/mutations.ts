/**
 * `npm run test:mutations`: takes out one fence at a time, in a copy of the source, and lets the
 * simulation look for what that breaks. A fence whose loss nobody notices is either not needed or
 * not tested; either way the script fails. First every seed of the suite is run twice on the source
 * as it is, and must do the same both times.
 *
 * Names of mutations as arguments run only those.
 */
import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Hunted } from "./hunt.ts";

type Edit = { readonly file: string; readonly find: string; readonly put: string };
type Mutation = { readonly name: string; readonly edits: readonly Edit[] };

const seedLimit = 2_000;
const sameTwice = 500;
const root = fileURLToPath(new URL("../..", import.meta.url));

const finish = (find: string, put = ""): Edit => ({
  file: "src/queue/statements/finish.ts",
  find,
  put,
});
const recover = (find: string, put = ""): Edit => ({
  file: "src/queue/statements/recover.ts",
  find,
  put,
});
const claim = (find: string, put = ""): Edit => ({
  file: "src/queue/statements/claim.ts",
  find,
  put,
});

const recoverToken = recover(
  "orphan.task_id and ${from}.claim_token = orphan.token",
  "orphan.task_id",
);
const recoverBeat = recover(
  `= orphan.pod_id
    and not exists (select 1 from \${pods} pod
      where pod.pod_id = orphan.pod_id and pod.beat <> orphan.beat)\`;
}`,
  "= orphan.pod_id`;\n}",
);

const mutations: readonly Mutation[] = [
  {
    name: "finish: without the token",
    edits: [finish("\n      and ${tasks}.claim_token = done.token")],
  },
  {
    name: "finish: without the status",
    edits: [finish("\n      and ${tasks}.status in ('claimed', 'pending')")],
  },
  {
    name: "finish: without the wake",
    edits: [finish("\n      and (done.wake is null or ${tasks}.wake = done.wake)")],
  },
  {
    name: "progress: without the token",
    edits: [finish(" and ${tasks}.claim_token = newest.token")],
  },
  {
    name: "recover: without the status",
    edits: [recover("and ${from}.status = 'claimed' and", "and")],
  },
  { name: "recover: without the beat", edits: [recoverBeat] },
  { name: "recover: without token and beat", edits: [recoverToken, recoverBeat] },
  {
    name: "recover: deaths without a limit",
    edits: [
      recover(
        "const spent = sql`${tasks}.deaths + 1 >= ${deathLimit}`",
        "const spent = sql`false`",
      ),
    ],
  },
  {
    name: "claim: without the floor",
    edits: [claim(" and claim_floor < ${claim.call})", ")")],
  },
  {
    name: "claim: lost answers aren't released",
    edits: [claim("and claim_call = ${call} and status = 'claimed'", "and claim_call = -1")],
  },
  {
    name: "claim: released though it was cancelled",
    edits: [
      claim("case when cancel_requested = 1 then 'cancelled' else 'pending' end", "'pending'"),
    ],
  },
  {
    name: "claim: before its time",
    edits: [
      claim("deaths < 2 and run_at <= ${now}\n", "deaths < 2\n"),
      claim("parked = 1 and run_at <= ${now}", "parked = 1"),
    ],
  },
  {
    name: "claim: names that the pod doesn't know",
    edits: [
      claim(
        "where name = ${name} and status = 'pending' and parked = 0 and deaths < 2 and run_at",
        "where ${name} <> '' and status = 'pending' and parked = 0 and deaths < 2 and run_at",
      ),
    ],
  },
  {
    name: "claim: the floor is lost with the pod's row",
    edits: [
      claim(
        "insert into ${pods} (pod_id, claim_floor) values (${podId}, ${call})",
        "insert into ${pods} (pod_id, claim_floor) select ${podId}, ${call} from ${pods} where pod_id = ${podId}",
      ),
    ],
  },
  {
    name: "claim: what must run alone, beside others",
    edits: [claim("parked = 0 and deaths < 2 and run_at", "parked = 0 and run_at")],
  },
  {
    name: "claim: what this pod still runs",
    edits: [claim("if (held.length === 0) return sql``;", "if (held.length >= 0) return sql``;")],
  },
  {
    name: "recover: cancelled tasks are given back",
    edits: [
      recover(
        "case when cancel_requested = 1 then 'cancelled' when ${spent}",
        "case when ${spent}",
      ),
    ],
  },
  {
    name: "leader: the oldest leads though it is silent",
    edits: [
      { file: "src/pods/liveness.ts", find: "pod.silentMs < limits.deadAfterMs &&", put: "" },
      {
        file: "src/pods/liveness.ts",
        find: "(pod.podId === self || pod.idleMs < limits.deadAfterMs)",
        put: "true",
      },
    ],
  },
  {
    name: "worker: others beside one that must run alone",
    edits: [{ file: "src/queue/worker.ts", find: "!more || runsAlone ||", put: "!more ||" }],
  },
  {
    name: "liveness: silence counted over gaps",
    edits: [
      {
        file: "src/pods/liveness.ts",
        find: "const gap = elapsedMs > limits.gapMs;",
        put: "const gap = false;",
      },
    ],
  },
  {
    name: "enqueue: sent again with another id",
    edits: [
      {
        file: "src/queue/enqueue.ts",
        find: "await resend(database, statementsFor(news), {",
        put: `await resend(((sends) => ({ ...database, write: () => database.write(statementsFor(
          sends++ === 0 ? news : news.map((each) => ({ ...each,
            taskId: each.taskId.slice(0, -8) + random.uint32().toString(16).padStart(8, "0") })))) }))(0),
          statementsFor(news), {`,
      },
    ],
  },
  {
    name: "resend: a refusal after an unknown outcome is believed",
    edits: [
      {
        file: "src/queue/resend.ts",
        find: 'if (hasCode(error, "unknown_outcome")) unknown = error;',
        put: "",
      },
    ],
  },
];

const wanted = process.argv.slice(2);
const chosen = mutations.filter(
  ({ name }) => wanted.length === 0 || wanted.some((part) => name.includes(part)),
);
let missed = 0;

if (wanted.length === 0) {
  const { found, differing } = await hunt([], { to: sameTwice, twice: true });
  const shown = found ? `${found.invariant} at seed ${found.seed}` : "nothing violated";
  row(
    `as it is, ${sameTwice} seeds twice`,
    differing === undefined ? "same" : `${differing}`,
    shown,
  );
  if (found || differing !== undefined) missed++;
}
for (const { name, edits } of chosen) {
  const { found } = await hunt(edits, { to: seedLimit, twice: false });
  if (!found) missed++;
  row(
    name,
    found ? `seed ${found.seed}` : "NOT FOUND",
    found ? `${found.invariant}: ${found.what}` : "",
  );
}
process.exitCode = missed > 0 ? 1 : 0;

function row(...cells: [string, string, string]): void {
  const [first, second, third] = cells;
  console.log(`${first.padEnd(56)} ${second.padEnd(10)} ${third}`);
}

/** Runs seeds on a changed copy of the source, in a process of its own. */
async function hunt(
  edits: readonly Edit[],
  { to, twice }: { to: number; twice: boolean },
): Promise<Hunted> {
  const copy = mkdtempSync(join(tmpdir(), "flotilla-mutation-"));
  try {
    for (const part of ["src", "test/simulation", "package.json"]) {
      cpSync(join(root, part), join(copy, part), { recursive: true });
    }
    symlinkSync(join(root, "node_modules"), join(copy, "node_modules"));
    for (const edit of edits) change(copy, edit);
    const script = join(copy, "test/simulation/hunt.ts");
    const args = ["--conditions=flotilla:source", script, "1", `${to}`, twice ? "twice" : "once"];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    let output = "";
    for await (const chunk of child.stdout) output += String(chunk);
    return JSON.parse(output) as Hunted;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

function change(copy: string, { file, find, put }: Edit): void {
  const path = join(copy, file);
  const before = readFileSync(path, "utf8");
  const times = before.split(find).length - 1;
  if (times !== 1) throw new Error(`${file} holds this ${times} times, not once: ${find}`);
  writeFileSync(
    path,
    before.replace(find, () => put),
  );
}
