import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { type ShownLimit, queuesApi, type TenantFacts } from "../../asks/queues.ts";
import { type QueueSearch, scopeParts } from "../../facts/queues/rows.ts";
import { countText, counted, exactCount } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive, useMay } from "../../live.ts";
import type { PlannedAct } from "../../parts/act-dialog.tsx";
import { AuditLink } from "../../parts/audit-link.tsx";
import { Advice, Badge, When, Wide } from "../../parts/marks.tsx";
import { Failed, Ready } from "../../parts/states.tsx";
import { shortId, ShownText } from "../../parts/text.tsx";

const rowsAtFirst = 20;
const rowsMore = 100;
const limitRange = { min: 1, max: 10_000 };

type OnPlan = (plan: PlannedAct) => void;

/** The limits that were set and those that block tasks, each with the tasks that hold its slots. */
export function LimitBlock({ search, onPlan }: { search: QueueSearch; onPlan: OnPlan }) {
  const { scope } = search;
  const limits = useLive(["limits"], queuesApi.limits);
  const [shown, setShown] = useState(rowsAtFirst);
  const found = limits.data?.limits ?? [];
  const isListed = found.slice(0, shown).some((each) => each.scope === scope);
  const isAsked = scope !== undefined && limits.data !== undefined && !isListed;
  const asked = useLive(
    ["limit", scope],
    (signal) => queuesApi.limit(scope ?? "", signal).then((limit) => limit ?? null),
    { isOff: !isAsked },
  );
  const first = isAsked && asked.data ? [asked.data] : [];
  const rows = [...first, ...found.slice(0, shown)];
  return (
    <section className="block">
      <h2>Limits</h2>
      {isAsked && asked.error && (
        <Failed error={asked.error} onRetry={() => void asked.refetch()} />
      )}
      <Ready of={limits} what="limits">
        {({ next }) => (
          <>
            {rows.length === 0 ? (
              <p className="soft">
                No limit was set, and none holds tasks back.{" "}
                <Advice text="`flotilla limits set tenant/acme 5` sets one." />
              </p>
            ) : (
              <Wide label="Limits">
                <LimitTable limits={rows} search={search} onPlan={onPlan} />
              </Wide>
            )}
            {found.length > shown && (
              <p>
                <button type="button" className="inline" onClick={() => setShown(shown + rowsMore)}>
                  Show {exactCount(Math.min(rowsMore, found.length - shown))} more of{" "}
                  {counted(found.length, "limit")}
                </button>
              </p>
            )}
            {next !== null && (
              <p className="soft">
                <Advice text="There are more: `flotilla limits list` has all of them." />
              </p>
            )}
          </>
        )}
      </Ready>
    </section>
  );
}

type LimitTableProps = {
  limits: readonly ShownLimit[];
  search: QueueSearch;
  onPlan: OnPlan;
};

function LimitTable({ limits, search, onPlan }: LimitTableProps) {
  const maySet = useMay("admin");
  return (
    <table className="limits">
      <thead>
        <tr>
          <th scope="col">Limit of</th>
          <th scope="col" className="number">
            Slots
          </th>
          <th scope="col" className="number">
            In use
          </th>
          <th scope="col" className="number">
            Held back
          </th>
          <th scope="col">Set</th>
          {maySet && (
            <th scope="col">
              <span className="hidden">Acts</span>
            </th>
          )}
        </tr>
      </thead>
      {limits.map((limit) => (
        <LimitRows
          key={limit.scope}
          limit={limit}
          search={search}
          onPlan={maySet ? onPlan : undefined}
        />
      ))}
    </table>
  );
}

type LimitRowsProps = {
  limit: ShownLimit;
  search: QueueSearch;
  onPlan: OnPlan | undefined;
};

function LimitRows({ limit: facts, search, onPlan }: LimitRowsProps) {
  const { scope, limit, running, blocked, byHand } = facts;
  const { scope: open, ...closed } = search;
  const isOpen = scope === open;
  const { kind, of } = scopeParts(scope);
  const isFull = limit !== null && running >= limit;
  return (
    <tbody>
      <tr>
        <th scope="row">
          <Badge>{visibleLine(kind, 20)}</Badge>{" "}
          <Link
            to="/queues"
            search={isOpen ? closed : { ...closed, scope }}
            aria-expanded={isOpen}
            resetScroll={false}
          >
            <ShownText text={visibleLine(of, 200)} />
          </Link>
        </th>
        <td className="number">{limit === null ? "no limit" : exactCount(limit)}</td>
        <td className={`number ${isFull ? "wrong" : ""}`}>{countText(running)}</td>
        <td className={`number ${blocked === 0 ? "is-none" : ""}`}>{countText(blocked)}</td>
        <td className="soft">
          {byHand ? "by hand" : limit === null ? "nowhere" : "in the code"}{" "}
          {byHand && <AuditLink subject={scope} />}
        </td>
        {onPlan && (
          <td className="number">
            <button
              type="button"
              className="button small"
              aria-label={`Set the limit of ${visibleLine(scope, 80)}`}
              onClick={() => onPlan(limitPlan(facts))}
            >
              Set
            </button>
          </td>
        )}
      </tr>
      {isOpen && (
        <tr>
          <td colSpan={onPlan ? 6 : 5} className="holders">
            <Holders scope={scope} />
          </td>
        </tr>
      )}
    </tbody>
  );
}

/** The tasks that use the slots, so that the one in the way can be found. */
function Holders({ scope }: { scope: string }) {
  const holders = useLive(["holders", scope], (signal) => queuesApi.holders(scope, signal));
  return (
    <Ready of={holders} what="who holds the slots">
      {({ tasks, next }) =>
        tasks.length === 0 ? (
          <p className="soft">No task holds a slot.</p>
        ) : (
          <>
            <ul className="lines" aria-label="Tasks that hold the slots">
              {tasks.map((task) => (
                <li key={task.taskId}>
                  <Link to="/tasks/$taskId" params={{ taskId: task.taskId }} title={task.taskId}>
                    <ShownText text={visibleLine(task.name, 80)} />{" "}
                    <code>{shortId(task.taskId)}</code>
                  </Link>
                  {task.status === "claimed" && (
                    <span className="soft">
                      on{" "}
                      <code title={task.claimedBy}>{visibleLine(shortId(task.claimedBy), 40)}</code>
                    </span>
                  )}
                  <span className="soft end">
                    since <When atMs={task.updatedAtMs} />
                  </span>
                </li>
              ))}
            </ul>
            {next !== null && <p className="soft">These are the newest {tasks.length}.</p>}
          </>
        )
      }
    </Ready>
  );
}

/** What each tenant has running and waiting. Tasks without a tenant aren't here. */
export function TenantBlock() {
  const tenants = useLive(["tenants"], queuesApi.tenants);
  const [shown, setShown] = useState(rowsAtFirst);
  const found = tenants.data?.tenants ?? [];
  if (found.length === 0) return null;
  return (
    <section className="block">
      <h2>Tenants</h2>
      <Wide label="Tenants">
        <table className="tenants">
          <thead>
            <tr>
              <th scope="col">Tenant</th>
              <th scope="col" className="number">
                Slots
              </th>
              <th scope="col" className="number">
                Running
              </th>
              <th scope="col" className="number">
                Ready
              </th>
              <th scope="col" className="number">
                At a limit
              </th>
            </tr>
          </thead>
          <tbody>
            {found.slice(0, shown).map((each) => (
              <TenantRow key={each.tenant} facts={each} />
            ))}
          </tbody>
        </table>
      </Wide>
      {found.length > shown && (
        <p>
          <button type="button" className="inline" onClick={() => setShown(shown + rowsMore)}>
            Show {exactCount(Math.min(rowsMore, found.length - shown))} more of{" "}
            {counted(found.length, "tenant")}
          </button>
        </p>
      )}
    </section>
  );
}

function TenantRow({ facts: { tenant, limit, running, ready, blocked } }: { facts: TenantFacts }) {
  return (
    <tr>
      <th scope="row">
        <Link to="/tasks" search={{ tenant }}>
          <ShownText text={visibleLine(tenant, 200)} />
        </Link>
      </th>
      <td className="number">{limit === null ? "no limit" : exactCount(limit)}</td>
      {[running, ready, blocked].map((count, at) => (
        <td key={at} className={`number ${count === 0 ? "is-none" : ""}`}>
          {countText(count)}
        </td>
      ))}
    </tr>
  );
}

function limitPlan({ scope, limit, byHand }: ShownLimit): PlannedAct {
  let text = limit === null ? "" : String(limit);
  return {
    title: "Set this limit?",
    explanation: (
      <>
        <p>
          How many tasks of{" "}
          <strong>
            <ShownText text={visibleLine(scope, 300)} />
          </strong>{" "}
          may run at once in the whole fleet, in place of what the code says. What runs goes on,
          also above the new limit.
        </p>
        <label className="field">
          Slots, {limitRange.min} to {exactCount(limitRange.max)}
          {byHand && "; empty takes the limit away"}
          <input
            type="number"
            min={limitRange.min}
            max={limitRange.max}
            step={1}
            required={!byHand}
            defaultValue={text}
            onChange={(event) => {
              text = event.target.value;
            }}
          />
        </label>
      </>
    ),
    verb: "Set",
    async perform({ actId }) {
      const wanted = text.trim() === "" ? null : Number(text);
      const answer = await queuesApi.setLimit({ scope, limit: wanted }, { actId });
      return answer.limit === null
        ? "There is no limit any more."
        : `The limit is ${exactCount(answer.limit)}.`;
    },
  };
}
