import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useState } from "react";
import { api, type DepthFacts, type PauseView } from "../../api.ts";
import { queuesApi } from "../../asks/queues.ts";
import {
  countColumns,
  rowsOnPage,
  pauseOfAll,
  queueChoices,
  queueRows,
  queueSearchIn,
  type QueueRow,
  type QueueSearch,
} from "../../facts/queues/rows.ts";
import { countText, counted, durationText, exactCount } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive, useMay, useSeesAll } from "../../live.ts";
import { ActDialog, type PlannedAct } from "../../parts/act-dialog.tsx";
import { AuditLink } from "../../parts/audit-link.tsx";
import { CountLink } from "../../parts/links.tsx";
import { Badge, When, Wide } from "../../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../../parts/states.tsx";
import { ShownText } from "../../parts/text.tsx";
import { LimitBlock, TenantBlock } from "./limits.tsx";
import "../../styles/queues.css";

const maxReasonChars = 500;
// The server counts the ready tasks of no more.
const maxNamesCounted = 2_000;

/** What is held back, and by what? Every name with its tasks, what is paused, and the limits. */
export function QueuesPage() {
  const seesAll = useSeesAll();
  if (seesAll) return <Queues />;
  return (
    <>
      <PageTitle name="Queues">Queues</PageTitle>
      <Empty title="Queues are of all tenants together.">
        You see the tasks of one tenant. <Link to="/tasks">To your tasks</Link>
      </Empty>
    </>
  );
}

function Queues() {
  // The router passes on what the address has besides.
  const search = queueSearchIn(useSearch({ from: "/queues" }));
  const mayAct = useMay("fleet:operate");
  const depth = useLive(["depth"], api.depth);
  const pauses = useLive(["pauses"], api.pauses);
  const [plan, setPlan] = useState<PlannedAct>();
  const ofAll = pauseOfAll(pauses.data ?? []);
  const known = depth.data && pauses.data ? { depth: depth.data, pauses: pauses.data } : undefined;
  return (
    <>
      <PageTitle
        name="Queues"
        aside={
          mayAct &&
          pauses.data &&
          !ofAll && (
            <div className="page-aside">
              <button
                type="button"
                className="button"
                onClick={() => setPlan(pausePlan(undefined))}
              >
                Pause everything
              </button>
            </div>
          )
        }
      >
        Queues
      </PageTitle>
      {ofAll && <AllPaused pause={ofAll} onPlan={mayAct ? setPlan : undefined} />}
      <Ready
        of={{
          data: known,
          error: depth.error ?? pauses.error,
          refetch: () => Promise.all([depth.refetch(), pauses.refetch()]),
        }}
        what="queues"
      >
        {(facts) => <Names {...facts} search={search} onPlan={mayAct ? setPlan : undefined} />}
      </Ready>
      <LimitBlock search={search} onPlan={setPlan} />
      <TenantBlock />
      {plan && <ActDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </>
  );
}

type OnPlan = ((plan: PlannedAct) => void) | undefined;

function AllPaused({ pause, onPlan }: { pause: PauseView; onPlan: OnPlan }) {
  return (
    <section className="all-paused" aria-label="Everything is paused">
      <div>
        <p>
          <strong>Everything is paused.</strong> What runs goes on, and nothing else begins.
        </p>
        <PauseLine pause={pause} />
      </div>
      <div className="page-aside">
        <AuditLink subject="*" />
        {onPlan && (
          <button
            type="button"
            className="button primary"
            onClick={() => onPlan(resumePlan(undefined))}
          >
            Resume everything
          </button>
        )}
      </div>
    </section>
  );
}

/** Since when, by whom and why. */
function PauseLine({ pause: { sinceMs, by, reason } }: { pause: PauseView }) {
  return (
    <p className="soft">
      paused <When atMs={sinceMs} />
      {by !== null && (
        <>
          {" "}
          by <ShownText text={visibleLine(by, 100)} />
        </>
      )}
      {reason !== null && (
        <>
          : <ShownText text={visibleLine(reason, 500)} />
        </>
      )}
    </p>
  );
}

type NamesProps = {
  depth: DepthFacts;
  pauses: readonly PauseView[];
  search: QueueSearch;
  onPlan: OnPlan;
};

function Names({ depth, pauses, search, onPlan }: NamesProps) {
  const all = queueRows(depth, pauses, {});
  const found = queueRows(depth, pauses, search);
  const paused = all.filter(({ pause }) => pause !== undefined).length;
  const { rows, from, page, lastPage } = rowsOnPage(found, search.page);
  if (all.length === 0)
    return (
      <Empty
        title="Nothing is waiting, running, failed or paused."
        command={`flotilla enqueue mail '{"to":"ada"}'`}
      >
        A name is here while it has tasks that haven&apos;t completed. This stores one:
      </Empty>
    );
  const { page: _, ...unpaged } = search;
  return (
    <section className="block" aria-label="By name">
      <QueueFilter search={search} />
      {paused > 0 && search.only !== "paused" && (
        <p>
          <Link to="/queues" search={{ only: "paused" }}>
            {paused === 1 ? "1 name is paused" : `${exactCount(paused)} names are paused`}
          </Link>
        </p>
      )}
      {all.length >= maxNamesCounted && (
        <p className="soft">
          Ready tasks are counted for the first {exactCount(maxNamesCounted)} names of the alphabet.
          The <Link to="/tasks">list of tasks</Link> finds those of every name.
        </p>
      )}
      {found.length === 0 ? (
        <NoNames search={search} />
      ) : (
        <>
          <Wide label="Queues by name">
            <QueueTable
              rows={rows}
              isAllPaused={pauseOfAll(pauses) !== undefined}
              onPlan={onPlan}
            />
          </Wide>
          <p className="pager">
            <span className="soft">
              {lastPage === 1
                ? counted(found.length, "name")
                : `${exactCount(from + 1)} to ${exactCount(from + rows.length)} of ${counted(found.length, "name")}`}
            </span>
            {page > 1 && (
              <Link to="/queues" search={{ ...unpaged, page: String(page - 1) }}>
                Page before
              </Link>
            )}
            {page < lastPage && (
              <Link to="/queues" search={{ ...unpaged, page: String(page + 1) }}>
                Next page
              </Link>
            )}
          </p>
        </>
      )}
    </section>
  );
}

function NoNames({ search: { name, only } }: { search: QueueSearch }) {
  return (
    <Empty
      title="No name matches the filter."
      command={only === undefined && name !== undefined ? `flotilla pause ${name}` : undefined}
    >
      <Link to="/queues" search={{}}>
        Show all names
      </Link>
      {only === undefined && name !== undefined && ". A name without tasks can be paused as well:"}
    </Empty>
  );
}

function QueueFilter({ search }: { search: QueueSearch }) {
  const navigate = useNavigate();
  const [name, setName] = useState(search.name ?? "");
  useEffect(() => setName(search.name ?? ""), [search.name]);
  const apply = (change: { only?: string }) => {
    const only = queueChoices.find(([choice]) => choice === (change.only ?? search.only))?.[0];
    const next: QueueSearch = {
      ...(name.trim() !== "" && { name: name.trim() }),
      ...(only !== undefined && { only }),
      ...(search.scope !== undefined && { scope: search.scope }),
    };
    const isSame = next.name === search.name && next.only === search.only;
    if (!isSame) void navigate({ to: "/queues", search: next });
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    apply({});
  };
  return (
    <form className="filter" role="search" aria-label="Filter of names" onSubmit={submit}>
      <input
        type="text"
        data-filter=""
        aria-label="Name"
        placeholder="Name, or a part of it"
        autoComplete="off"
        spellCheck={false}
        maxLength={200}
        value={name}
        onChange={(event) => setName(event.target.value)}
        onBlur={() => apply({})}
      />
      <select
        aria-label="Only names"
        value={search.only ?? ""}
        onChange={(event) => apply({ only: event.target.value })}
      >
        <option value="">all names</option>
        {queueChoices.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      <button type="submit" className="hidden" tabIndex={-1}>
        Filter
      </button>
      {(search.name !== undefined || search.only !== undefined) && (
        <button
          type="button"
          className="inline"
          onClick={() => void navigate({ to: "/queues", search: {} })}
        >
          Clear
        </button>
      )}
    </form>
  );
}

type TableProps = { rows: readonly QueueRow[]; isAllPaused: boolean; onPlan: OnPlan };

function QueueTable({ rows, isAllPaused, onPlan }: TableProps) {
  return (
    <table className="queues">
      <thead>
        <tr>
          <th scope="col">Name</th>
          {countColumns.map(([key, title]) => (
            <th scope="col" key={key} className="number">
              {title}
            </th>
          ))}
          <th scope="col" className="number">
            Oldest wait
          </th>
          {onPlan && (
            <th scope="col" className="act">
              <span className="hidden">Acts</span>
            </th>
          )}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <QueueLine key={row.name} row={row} isAllPaused={isAllPaused} onPlan={onPlan} />
        ))}
      </tbody>
    </table>
  );
}

function QueueLine({
  row: { name, counts, pause },
  isAllPaused,
  onPlan,
}: {
  row: QueueRow;
  isAllPaused: boolean;
  onPlan: OnPlan;
}) {
  const shown = visibleLine(name, 60);
  return (
    <tr>
      <th scope="row">
        <Link to="/tasks" search={{ name }}>
          <ShownText text={name} />
        </Link>{" "}
        {(pause || isAllPaused) && <Badge tone="warn">paused</Badge>}
        {pause && <PauseLine pause={pause} />}
      </th>
      {countColumns.map(([key, title]) => (
        <td key={key} className={`number ${counts[key] === 0 ? "is-none" : ""}`}>
          {counts[key] === 0 ? (
            countText(0)
          ) : (
            <CountLink name={name} of={key} title={title} count={counts[key]} />
          )}
        </td>
      ))}
      <td className={`number ${counts.ready === 0 ? "is-none" : ""}`}>
        {counts.ready === 0 ? "–" : durationText(counts.oldestMs)}
      </td>
      {onPlan && (
        <td className="number act">
          {pause ? (
            <button
              type="button"
              className="button small"
              aria-label={`Resume ${shown}`}
              onClick={() => onPlan(resumePlan(name))}
            >
              Resume
            </button>
          ) : (
            <button
              type="button"
              className="button small"
              aria-label={`Pause ${shown}`}
              onClick={() => onPlan(pausePlan(name))}
            >
              Pause
            </button>
          )}
        </td>
      )}
    </tr>
  );
}

/** Without a name: everything. */
function pausePlan(name: string | undefined): PlannedAct {
  let reason = "";
  return {
    title: name === undefined ? "Pause everything?" : "Pause this name?",
    explanation: (
      <>
        <p>
          {name === undefined ? (
            "No pod begins a task, of any name or tenant,"
          ) : (
            <>
              No pod begins a task of{" "}
              <strong>
                <ShownText text={name} />
              </strong>
              , of any tenant,
            </>
          )}{" "}
          until it is resumed. What runs goes on, and new tasks wait.
        </p>
        <label className="field">
          Reason, for other operators
          <input
            type="text"
            autoComplete="off"
            maxLength={maxReasonChars}
            onChange={(event) => {
              reason = event.target.value;
            }}
          />
        </label>
      </>
    ),
    verb: "Pause",
    async perform({ actId }) {
      const why = reason.trim();
      await queuesApi.pause(
        { ...(name !== undefined && { name }), ...(why !== "" && { reason: why }) },
        { actId },
      );
      return name === undefined ? "Everything is paused." : `${visibleLine(name, 60)} is paused.`;
    },
  };
}

function resumePlan(name: string | undefined): PlannedAct {
  return {
    title: name === undefined ? "Resume everything?" : "Resume this name?",
    explanation: (
      <p>
        {name === undefined ? (
          "Pods begin tasks again. Names that were paused one by one stay paused."
        ) : (
          <>
            Pods begin tasks of{" "}
            <strong>
              <ShownText text={name} />
            </strong>{" "}
            again, at once.
          </>
        )}
      </p>
    ),
    verb: "Resume",
    async perform({ actId }) {
      await queuesApi.resume(name === undefined ? {} : { name }, { actId });
      return name === undefined ? "Pods go on." : `${visibleLine(name, 60)} goes on.`;
    },
  };
}
