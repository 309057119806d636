import { Link, useSearch } from "@tanstack/react-router";
import { type ScheduleFacts, schedulesApi } from "../../asks/schedules.ts";
import { patternWords } from "../../facts/schedules/pattern-words.ts";
import { scheduleStanding } from "../../facts/schedules/standing.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive, useNow, useSeesAll } from "../../live.ts";
import { When, Wide } from "../../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../../parts/states.tsx";
import { ShownText } from "../../parts/text.tsx";
import { StandingMark } from "./standing-mark.tsx";
import "../../styles/queues.css";

/** What fires next? Every schedule, in the order of their ids. */
export function SchedulesPage() {
  const seesAll = useSeesAll();
  const { cursor } = useSearch({ from: "/schedules" });
  const page = useLive(["schedules", cursor], (signal) => schedulesApi.list(cursor, signal), {
    isOff: !seesAll,
  });
  return (
    <>
      <PageTitle name="Schedules">Schedules</PageTitle>
      {seesAll ? (
        <Ready of={page} what="schedules">
          {({ schedules, next }) => (
            <>
              {schedules.length === 0 ? (
                <NoSchedules isFirst={cursor === undefined} />
              ) : (
                <ScheduleTable schedules={schedules} />
              )}
              {(cursor !== undefined || next !== null) && (
                <p className="pager">
                  {cursor !== undefined && (
                    <Link to="/schedules" search={{}}>
                      First page
                    </Link>
                  )}
                  {next !== null && (
                    <Link to="/schedules" search={{ cursor: next }}>
                      Next page
                    </Link>
                  )}
                </p>
              )}
            </>
          )}
        </Ready>
      ) : (
        <Empty title="Schedules are of all tenants together.">
          You see the tasks of one tenant. <Link to="/tasks">To your tasks</Link>
        </Empty>
      )}
    </>
  );
}

function NoSchedules({ isFirst }: { isFirst: boolean }) {
  if (!isFirst) return <Empty title="There are no schedules after the page before." />;
  return (
    <Empty
      title="There are no schedules yet."
      command={`flotilla schedules add nightly report --pattern "0 3 * * *" --zone Europe/Berlin`}
    >
      A schedule stores a task whenever its time comes. This makes one:
    </Empty>
  );
}

function ScheduleTable({ schedules }: { schedules: readonly ScheduleFacts[] }) {
  return (
    <Wide label="Schedules">
      <table className="schedules">
        <thead>
          <tr>
            <th scope="col">Schedule</th>
            <th scope="col">State</th>
            <th scope="col">Fires</th>
            <th scope="col">Tasks of</th>
            <th scope="col" className="number">
              Next
            </th>
            <th scope="col" className="number">
              Last
            </th>
          </tr>
        </thead>
        <tbody>
          {schedules.map((schedule) => (
            <ScheduleRow key={schedule.scheduleId} schedule={schedule} />
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function ScheduleRow({ schedule }: { schedule: ScheduleFacts }) {
  const { scheduleId, name, nextAtMs, lastAtMs, lastTaskId, pattern } = schedule;
  const standing = scheduleStanding(schedule, useNow());
  const { tone, why } = standing;
  return (
    <tr>
      <th scope="row">
        <Link to="/schedules/$scheduleId" params={{ scheduleId }}>
          <ShownText text={visibleLine(scheduleId, 200)} />
        </Link>
        {why !== undefined && (
          <p className={tone === "wrong" ? "wrong" : "soft"}>
            <ShownText text={visibleLine(why, 200)} />
          </p>
        )}
      </th>
      <td>
        <StandingMark standing={standing} />
      </td>
      <td title={pattern === null ? undefined : visibleLine(pattern, 200)}>
        <ShownText text={visibleLine(patternWords(schedule), 200)} />
      </td>
      <td>
        <Link to="/tasks" search={{ name }}>
          <ShownText text={visibleLine(name, 200)} />
        </Link>
      </td>
      <td className="number">{nextAtMs === null ? "–" : <When atMs={nextAtMs} />}</td>
      <td className="number soft">
        {lastAtMs === null ? (
          "–"
        ) : lastTaskId === null ? (
          <When atMs={lastAtMs} />
        ) : (
          <Link to="/tasks/$taskId" params={{ taskId: lastTaskId }}>
            <When atMs={lastAtMs} />
          </Link>
        )}
      </td>
    </tr>
  );
}
