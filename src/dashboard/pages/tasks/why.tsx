import { Link } from "@tanstack/react-router";
import { allNames } from "../../../protocol/task-options.ts";
import { tasksApi, type VerdictFacts, type WhyReasonFacts } from "../../asks/tasks.ts";
import { durationText } from "../../facts/spans.ts";
import { type Cell, evidenceOf, type EvidenceTable, throttleKeyIn } from "../../facts/tasks/why.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive, useSeesAll } from "../../live.ts";
import { ThrottleLink } from "../../parts/links.tsx";
import { Advice, When, Wide } from "../../parts/marks.tsx";
import { Ready } from "../../parts/states.tsx";
import { shortId, ShownText } from "../../parts/text.tsx";

/** Why a task waits, while it does: every reason with its evidence, where it leads and what to do. */
export function Why({ taskId }: { taskId: string }) {
  const found = useLive(["why", taskId], (signal) => tasksApi.why(taskId, signal));
  // What isn't read yet may be nothing, and most tasks wait for nothing.
  if (!found.data && !found.error) return null;
  return (
    <Ready of={found} what="why it waits">
      {(verdict) => <Reasons verdict={verdict} />}
    </Ready>
  );
}

function Reasons({ verdict: { reasons } }: { verdict: VerdictFacts }) {
  if (reasons.length === 0) return null;
  return (
    <section className="block why" aria-label="Why it waits">
      <h2>Why it waits</h2>
      <ol className="reasons">
        {reasons.map((reason, at) => (
          <li key={`${at} ${reason.code}`} className="reason">
            <Reason reason={reason} />
          </li>
        ))}
      </ol>
    </section>
  );
}

function Reason({ reason }: { reason: WhyReasonFacts }) {
  const { sentence, links, advice, command } = reason;
  const { rows, tables } = evidenceOf(reason);
  return (
    <>
      <p className="reason-sentence">
        <ShownText text={capital(visibleLine(sentence, 500))} />.
      </p>
      {advice !== null && (
        <p className="soft">
          <Advice text={visibleLine(advice, 500)} />
        </p>
      )}
      {command !== null && (
        <p>
          <code className="command">
            <ShownText text={visibleLine(command, 300)} />
          </code>
        </p>
      )}
      {links.length > 0 && (
        <p className="reason-links">
          {links.slice(0, maxLinks).map((link) => (
            <ReasonLink key={`${link.what} ${link.id}`} link={link} reason={reason} />
          ))}
          {links.length > maxLinks && (
            <span className="soft">and {links.length - maxLinks} more</span>
          )}
        </p>
      )}
      {(rows.length > 0 || tables.length > 0) && (
        <details>
          <summary>Evidence</summary>
          <dl className="evidence">
            {rows.map(({ label, cell }) => (
              <div key={label}>
                <dt>{label}</dt>
                <dd>
                  <Fact cell={cell} />
                </dd>
              </div>
            ))}
          </dl>
          {tables.map((table) => (
            <Table key={table.label} table={table} />
          ))}
        </details>
      )}
    </>
  );
}

const maxLinks = 10;

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

const kinds = { pod: "Pod", throttle: "Throttle", limit: "Limit", pause: "Pause of" } as const;

function ReasonLink({
  link: { what, id },
  reason,
}: {
  link: WhyReasonFacts["links"][number];
  reason: WhyReasonFacts;
}) {
  const seesAll = useSeesAll();
  const text = <ShownText text={visibleLine(what === "task" ? shortId(id) : id, 60)} />;
  // The pages of these are about all tenants.
  if (what !== "task" && !seesAll)
    return (
      <span>
        {kinds[what]} {text}
      </span>
    );
  switch (what) {
    case "task":
      return (
        <Link to="/tasks/$taskId" params={{ taskId: id }} title={id}>
          Task <code>{text}</code>
        </Link>
      );
    case "pod":
      return (
        <Link to="/pods" search={{ find: id }}>
          Pod {text}
        </Link>
      );
    case "throttle": {
      const key = throttleKeyIn(reason);
      // Which key it is depends on the task's input, and the list has them all.
      if (key === undefined) return <Link to="/throttles">Throttle {text}</Link>;
      return (
        <ThrottleLink throttle={{ name: id, key }}>
          Throttle {text}
          {key !== "" && (
            <>
              {" "}
              <ShownText text={visibleLine(key, 60)} />
            </>
          )}
        </ThrottleLink>
      );
    }
    case "limit":
      return (
        <Link to="/queues" search={{ scope: id }}>
          Limit {text}
        </Link>
      );
    case "pause":
      return id === allNames ? (
        <Link to="/queues">Pause of everything</Link>
      ) : (
        <Link to="/queues" search={{ name: id }}>
          Pause of {text}
        </Link>
      );
  }
}

function Fact({ cell }: { cell: Cell }) {
  switch (cell.type) {
    case "time":
      return <When atMs={cell.atMs} />;
    case "span":
      return <>{durationText(cell.ms)}</>;
    case "task":
      return (
        <Link to="/tasks/$taskId" params={{ taskId: cell.taskId }} title={cell.taskId}>
          <code>{shortId(visibleLine(cell.taskId, 100))}</code>
        </Link>
      );
    case "text":
      return <ShownText text={visibleLine(cell.text, 300)} />;
  }
}

function Table({ table: { label, columns, rows } }: { table: EvidenceTable }) {
  return (
    <Wide label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col" key={column}>
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((cells, at) => (
            <tr key={at}>
              {cells.map((cell, place) => (
                <td key={columns[place]}>
                  <Fact cell={cell} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}
