import { Link, useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { hasCode } from "../../../base/errors.ts";
import {
  type FiringFacts,
  type ScheduleFacts,
  schedulesApi,
  type ScheduleWhole,
} from "../../asks/schedules.ts";
import { patternWords } from "../../facts/schedules/pattern-words.ts";
import {
  firingRemark,
  missedPolicy,
  scheduleStanding,
  timeInZone,
} from "../../facts/schedules/standing.ts";
import { durationText } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive, useMay, useNow, useSeesAll } from "../../live.ts";
import { ActDialog, type PlannedAct } from "../../parts/act-dialog.tsx";
import { AuditLink } from "../../parts/audit-link.tsx";
import { type Fact, FactList } from "../../parts/blocks.tsx";
import { Badge, StatusMark, When, Wide } from "../../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../../parts/states.tsx";
import { LongText, shortId, ShownText } from "../../parts/text.tsx";
import { JsonValue } from "../../parts/value.tsx";
import { StandingMark } from "./standing-mark.tsx";
import "../../styles/queues.css";

/** When does it fire, and what came of it? One schedule, with its next times and its past firings. */
export function OneSchedulePage() {
  const { scheduleId } = useParams({ from: "/schedules/$scheduleId" });
  const seesAll = useSeesAll();
  const found = useLive(
    ["schedule", scheduleId],
    (signal) => schedulesApi.get(scheduleId, signal),
    { isOff: !seesAll },
  );
  // What was read before stays on the page, and may be of a schedule that is gone by now.
  const isGone = hasCode(found.error, "not_found");
  const shown = isGone ? undefined : found.data;
  return (
    <>
      <PageTitle
        name={scheduleId}
        aside={
          <div className="page-aside">
            <AuditLink subject={scheduleId} />
            {shown && <ScheduleActs key={scheduleId} schedule={shown.schedule} />}
          </div>
        }
      >
        <ShownText text={visibleLine(scheduleId, 200)} />
      </PageTitle>
      {!seesAll ? (
        <Empty title="Schedules are of all tenants together.">
          You see the tasks of one tenant. <Link to="/tasks">To your tasks</Link>
        </Empty>
      ) : isGone ? (
        <Gone wasThere={found.data !== undefined} />
      ) : (
        <Ready of={found} what="the schedule">
          {(whole) => <ScheduleBody whole={whole} />}
        </Ready>
      )}
    </>
  );
}

function Gone({ wasThere }: { wasThere: boolean }) {
  return (
    <Empty
      title={wasThere ? "This schedule was deleted." : "There is no schedule of this id."}
      command="flotilla schedules list"
    >
      {wasThere ? "The tasks that it has made stay. " : "It may have been deleted. "}
      <Link to="/schedules">To the schedules</Link>
    </Empty>
  );
}

function ScheduleBody({ whole: { schedule, upcomingMs } }: { whole: ScheduleWhole }) {
  const standing = scheduleStanding(schedule, useNow());
  const { tone, why } = standing;
  return (
    <>
      <p className="headline">
        <StandingMark standing={standing} />
        <span>
          <ShownText text={visibleLine(patternWords(schedule), 300)} />
        </span>
        {why !== undefined && (
          <span className={tone === "wrong" ? "wrong" : "soft"}>
            <LongText text={why} maxChars={300} />
          </span>
        )}
      </p>
      <div className="columns">
        <div>
          <NextTimes schedule={schedule} upcomingMs={upcomingMs} />
          <Firings scheduleId={schedule.scheduleId} />
          <section className="block">
            <h2>Payload of its tasks</h2>
            <JsonValue value={schedule.input} label="the payload" />
          </section>
        </div>
        <div>
          <ScheduleFactList schedule={schedule} />
        </div>
      </div>
    </>
  );
}

function NextTimes({
  schedule: { state, zone },
  upcomingMs,
}: {
  schedule: ScheduleFacts;
  upcomingMs: readonly number[];
}) {
  if (state === "broken") return null;
  return (
    <section className="block">
      <h2>
        Next times
        {state === "paused" && <span className="soft">if it were resumed now</span>}
      </h2>
      {upcomingMs.length === 0 ? (
        <p className="soft">None: its pattern has no more times.</p>
      ) : (
        <ol className="lines" aria-label="Next times">
          {upcomingMs.map((atMs) => (
            <li key={atMs}>
              <span className="number">{timeInZone(atMs, zone)}</span>
              <span className="soft end">
                <When atMs={atMs} />
              </span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

function Firings({ scheduleId }: { scheduleId: string }) {
  const { cursor } = useSearch({ from: "/schedules/$scheduleId" });
  const page = useLive(
    ["firings", scheduleId, cursor],
    (signal) => schedulesApi.firings(scheduleId, cursor, signal),
    { isSettled: () => cursor !== undefined },
  );
  return (
    <section className="block">
      <h2>Past firings</h2>
      <Ready of={page} what="past firings">
        {({ firings, next }) => (
          <>
            {firings.length === 0 ? (
              <p className="soft">
                {cursor === undefined
                  ? "None is kept. The leader deletes tasks that ended long ago."
                  : "There are none before these."}
              </p>
            ) : (
              <FiringTable firings={firings} />
            )}
            {(cursor !== undefined || next !== null) && (
              <p className="pager">
                {cursor !== undefined && (
                  <Link to="/schedules/$scheduleId" params={{ scheduleId }} search={{}}>
                    Newest
                  </Link>
                )}
                {next !== null && (
                  <Link
                    to="/schedules/$scheduleId"
                    params={{ scheduleId }}
                    search={{ cursor: next }}
                  >
                    Older
                  </Link>
                )}
              </p>
            )}
          </>
        )}
      </Ready>
    </section>
  );
}

function FiringTable({ firings }: { firings: readonly FiringFacts[] }) {
  return (
    <Wide label="Past firings">
      <table className="firings">
        <thead>
          <tr>
            <th scope="col">For</th>
            <th scope="col">Task</th>
            <th scope="col">Outcome</th>
            <th scope="col">Remark</th>
            <th scope="col" className="number">
              Took
            </th>
          </tr>
        </thead>
        <tbody>
          {firings.map((firing) => (
            <FiringRow key={firing.taskId} firing={firing} />
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function FiringRow({ firing }: { firing: FiringFacts }) {
  const { taskId, name, status, scheduledAtMs, createdAtMs, endedAtMs, failures } = firing;
  const remark = firingRemark(firing);
  return (
    <tr>
      <th scope="row">
        <When atMs={scheduledAtMs ?? createdAtMs} />{" "}
        {scheduledAtMs === null && <Badge>by hand</Badge>}
      </th>
      <td>
        <Link to="/tasks/$taskId" params={{ taskId }} title={taskId}>
          <ShownText text={visibleLine(name, 80)} /> <code>{shortId(taskId)}</code>
        </Link>
      </td>
      <td>
        <StatusMark status={status} />
      </td>
      <td>
        {remark !== undefined && <Badge tone="warn">{remark}</Badge>}{" "}
        {failures > 0 && (
          <span className="soft">
            {failures === 1 ? "1 attempt failed" : `${failures} attempts failed`}
          </span>
        )}
      </td>
      <td className="number soft">
        {endedAtMs === null ? "–" : durationText(endedAtMs - createdAtMs)}
      </td>
    </tr>
  );
}

function ScheduleFactList({ schedule }: { schedule: ScheduleFacts }) {
  const { name, pattern, zone, everyMs, missed, options, revision } = schedule;
  const { createdAtMs, updatedAtMs, lastAtMs } = schedule;
  const { priority, attempts, tenant, concurrencyKey } = options;
  const facts: Fact[] = [
    [
      "Tasks of",
      <Link key="name" to="/tasks" search={{ name }}>
        <ShownText text={visibleLine(name, 200)} />
      </Link>,
    ],
    pattern !== null && [
      "Pattern",
      <code key="pattern">
        <LongText text={pattern} maxChars={200} />
      </code>,
    ],
    zone !== null && ["Time zone", <ShownText key="zone" text={visibleLine(zone, 100)} />],
    everyMs !== null && ["Interval", durationText(everyMs)],
    ["Missed times", missedPolicy(missed)],
    lastAtMs !== null && ["Last time", <When key="last" atMs={lastAtMs} />],
    tenant !== undefined && [
      "Tenant",
      <Link key="tenant" to="/tasks" search={{ tenant }}>
        <ShownText text={visibleLine(tenant, 200)} />
      </Link>,
    ],
    priority !== undefined && ["Priority", String(priority)],
    attempts !== undefined && ["Attempts", String(attempts)],
    concurrencyKey !== undefined && [
      "Limit's key",
      <LongText key="key" text={concurrencyKey} maxChars={200} />,
    ],
    ["Made", <When key="made" atMs={createdAtMs} />],
    ["Changed", <When key="changed" atMs={updatedAtMs} />],
    ["Revision", String(revision)],
  ];
  return (
    <section className="block">
      <h2>Facts</h2>
      <FactList facts={facts} />
    </section>
  );
}

function ScheduleActs({ schedule }: { schedule: ScheduleFacts }) {
  const mayAct = useMay("fleet:operate");
  const mayDelete = useMay("admin");
  const [plan, setPlan] = useState<PlannedAct>();
  const { state } = schedule;
  return (
    <>
      {mayAct && (
        <button type="button" className="button" onClick={() => setPlan(firePlan(schedule))}>
          Fire now
        </button>
      )}
      {mayAct && state === "paused" && (
        <button
          type="button"
          className="button primary"
          onClick={() => setPlan(resumePlan(schedule))}
        >
          Resume
        </button>
      )}
      {mayAct && state === "active" && (
        <button type="button" className="button" onClick={() => setPlan(pausePlan(schedule))}>
          Pause
        </button>
      )}
      {mayDelete && (
        <button type="button" className="button" onClick={() => setPlan(deletePlan(schedule))}>
          Delete
        </button>
      )}
      {plan && <ActDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </>
  );
}

function firePlan({ scheduleId, name }: ScheduleFacts): PlannedAct {
  return {
    title: "Fire this schedule now?",
    explanation: (
      <p>
        A task of{" "}
        <strong>
          <ShownText text={visibleLine(name, 200)} />
        </strong>{" "}
        is stored at once, in addition to those of its times.
      </p>
    ),
    verb: "Fire",
    async perform({ actId }) {
      const { taskId } = await schedulesApi.fire(scheduleId, { actId });
      return `The task ${shortId(taskId)} is stored.`;
    },
  };
}

function pausePlan({ scheduleId }: ScheduleFacts): PlannedAct {
  return {
    title: "Pause this schedule?",
    explanation: <p>It makes no tasks until it is resumed. Its times until then are left out.</p>,
    verb: "Pause",
    async perform({ actId }) {
      await schedulesApi.pause(scheduleId, { actId });
      return "The schedule is paused.";
    },
  };
}

function resumePlan({ scheduleId }: ScheduleFacts): PlannedAct {
  return {
    title: "Resume this schedule?",
    explanation: <p>It goes on with its next time after now.</p>,
    verb: "Resume",
    async perform({ actId }) {
      await schedulesApi.resume(scheduleId, { actId });
      return "The schedule goes on.";
    },
  };
}

function deletePlan({ scheduleId }: ScheduleFacts): PlannedAct {
  return {
    title: "Delete this schedule?",
    explanation: (
      <p>
        It makes no more tasks. Those that it has made stay. A schedule that is in a pod&apos;s
        config comes back when a pod with it starts.
      </p>
    ),
    verb: "Delete it",
    isHarmful: true,
    async perform({ actId }) {
      await schedulesApi.remove(scheduleId, { actId });
      return "The schedule is deleted.";
    },
  };
}
