import { Link } from "@tanstack/react-router";
import { useId, useState } from "react";
import type { FlowWhole, PlaceCounts, RunFacts, RunQuery } from "../../asks/flows.ts";
import {
  drawnMachine,
  machineRows,
  type MachineRow,
  type MachineState,
  runDots,
} from "../../facts/flows/machine-rows.ts";
import { countText, counted, durationText, exactCount } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { ShownText } from "../../parts/text.tsx";
import { StuckLines } from "./flow-marks.tsx";

// As high as a row is in the styles.
const rowPx = 44;
const dotPx = 12;
const dotsPerRow = 9;

type MachineProps = {
  whole: FlowWhole;
  search: RunQuery;
  /** The runs that are drawn on it. */
  runs: readonly RunFacts[];
};

/** The declared machine, its states from the top to the end, with the runs that are there now. */
export function MachineChart({ whole: { flow, times }, search, runs }: MachineProps) {
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const version = search.version === undefined ? undefined : Number(search.version);
  const { states, isDeclared, elsewhere } = drawnMachine(flow, times, version);
  const rows = machineRows(states, { opened, chosen: search.at });
  const dots = runDots(rows, runs, dotsPerRow);
  const titleId = useId();
  const isFolded = rows.some(({ type }) => type === "fold");
  return (
    <section className="block" aria-labelledby={titleId}>
      <h2 id={titleId}>
        Machine{" "}
        <span className="soft">
          {isDeclared && flow.machine
            ? `version ${flow.machine.version}, ${counted(flow.machine.parts.length, "state")}`
            : "states that runs are at"}
          {isDeclared && flow.machine?.queue && (
            <>
              , in queue <ShownText text={flow.machine.queue.name} /> ({flow.machine.queue.limit} at
              once)
            </>
          )}
        </span>
        {isFolded && (
          <button
            type="button"
            className="inline unfold-all"
            onClick={() => setOpened(new Set(states.map(({ name }) => name)))}
          >
            unfold all
          </button>
        )}
      </h2>
      {!isDeclared && (
        <p className="soft">
          {version === undefined
            ? "No live pod has told what this flow is made of, so that the order of its states isn't known."
            : `No live pod has told what version ${version} is made of, so that the order of its states isn't known.`}
        </p>
      )}
      <div className="machine" role="table" aria-label="States, in the order in which they run">
        <div role="rowgroup">
          <div role="row" className="machine-row machine-head">
            <span role="columnheader">State</span>
            <span role="columnheader" className="number">
              Runs now
            </span>
            <span role="columnheader">Of these</span>
            <span role="columnheader" className="number">
              p50
            </span>
            <span role="columnheader" className="number">
              p95
            </span>
            <span role="columnheader" className="number">
              Retries
            </span>
            <span role="columnheader">Stuck</span>
          </div>
        </div>
        <div className="machine-track">
          <div role="rowgroup">
            {rows.map((row, index) =>
              row.type === "fold" ? (
                <FoldRow
                  key={`fold ${row.key}`}
                  row={row}
                  onOpen={() => setOpened(new Set([...opened, row.key]))}
                />
              ) : (
                <StateRow
                  key={`${row.state.kind} ${row.state.name}`}
                  state={row.state}
                  isFirst={index === 0}
                  isLast={index === rows.length - 1}
                  flow={flow.flow}
                  search={search}
                />
              ),
            )}
          </div>
          <svg
            className="machine-dots"
            aria-hidden="true"
            width={dotsPerRow * dotPx}
            height={rows.length * rowPx}
          >
            {dots.map(({ runId, row, place, isWrong }) => (
              <circle
                key={runId}
                r={4}
                className={isWrong ? "run-dot wrong" : "run-dot"}
                style={{
                  transform: `translate(${place * dotPx + dotPx / 2}px, ${row * rowPx + rowPx / 2}px)`,
                }}
              />
            ))}
          </svg>
        </div>
      </div>
      {elsewhere.length > 0 && (
        <>
          <p className="soft">
            Runs also stand at names that this version doesn&apos;t have: of another version, or set
            aside.
          </p>
          <ul className="lines">
            {elsewhere.slice(0, maxElsewhere).map((state) => (
              <li key={state.name}>
                <StateLink state={state} flow={flow.flow} search={search} />
                {state.stuck.length === 0 && (
                  <span className="soft">{countsText(state.counts)}</span>
                )}
                <StuckLines stuck={state.stuck} isAtState />
              </li>
            ))}
            {elsewhere.length > maxElsewhere && (
              <li className="soft">and {counted(elsewhere.length - maxElsewhere, "other")}</li>
            )}
          </ul>
        </>
      )}
      <p className="soft">
        p50 and p95 are of attempts and waits that ended in the last hour, estimated within a factor
        of 2, and of all versions, as retries are.
      </p>
    </section>
  );
}

const maxElsewhere = 20;

type StateRowProps = {
  state: MachineState;
  isFirst: boolean;
  isLast: boolean;
  flow: string;
  search: RunQuery;
};

function StateRow({ state, isFirst, isLast, flow, search }: StateRowProps) {
  const { runs, times, counts, stuck, kind, at, does } = state;
  const retries = times?.outcomes["retry"] ?? 0;
  const isChosen = at !== null && at === search.at;
  // An estimate has one unit: `13 min`.
  const time = (ms: number | null | undefined) =>
    ms == null ? "–" : durationText(ms).split(" ").slice(0, 2).join(" ");
  return (
    <div role="row" className={`machine-row ${isChosen ? "is-chosen" : ""}`}>
      <span role="rowheader" className="state">
        <Rail
          kind={kind}
          tone={stuck.length > 0 ? "wrong" : runs > 0 ? "busy" : ""}
          isFirst={isFirst}
          isLast={isLast}
        />
        <span className="state-dots" />
        <span className="state-text">
          <span className="cut">
            <StateLink state={state} flow={flow} search={search} />
          </span>
          <span className="soft cut state-does" title={visibleLine(does)}>
            <ShownText text={does} />
          </span>
        </span>
      </span>
      <span role="cell" className={`number ${runs === 0 ? "is-none" : "state-runs"}`}>
        {countText(runs)}
      </span>
      <span role="cell" className="soft cut cell-of">
        {countsText(counts)}
      </span>
      <span role="cell" className="number cell-time">
        {time(times?.p50Ms)}
      </span>
      <span role="cell" className="number cell-time">
        {time(times?.p95Ms)}
      </span>
      <span role="cell" className={`number cell-time ${retries === 0 ? "is-none" : ""}`}>
        {exactCount(retries)}
      </span>
      <span role="cell" className="cell-stuck cut">
        <StuckLines stuck={stuck} isAtState />
      </span>
    </div>
  );
}

/** Leads to the runs that are there. Those that haven't begun have no state to be filtered by. */
function StateLink({ state, flow, search }: Pick<StateRowProps, "state" | "flow" | "search">) {
  const { at, name } = state;
  if (at === null) return <span className="state-name">{name}</span>;
  const isChosen = at === search.at;
  return (
    <Link
      to="/flows/$flow"
      params={{ flow }}
      search={{ ...search, at: isChosen ? undefined : at, cursor: undefined }}
      className="state-name"
      aria-current={isChosen ? "true" : undefined}
      resetScroll={false}
    >
      <ShownText text={name} />
    </Link>
  );
}

function FoldRow({
  row,
  onOpen,
}: {
  row: Extract<MachineRow, { type: "fold" }>;
  onOpen: () => void;
}) {
  return (
    <div role="row" className="machine-row machine-fold">
      <span role="rowheader" className="state">
        <Rail kind="fold" tone="" isFirst={false} isLast={false} />
        <span className="state-dots" />
        <button type="button" className="inline" onClick={onOpen} aria-expanded="false">
          {counted(row.states.length, "state")} without runs
        </button>
      </span>
    </div>
  );
}

/** The line of the machine in one row: solid through transitions, dashed through what always runs. */
function Rail({
  kind,
  tone,
  isFirst,
  isLast,
}: {
  kind: MachineState["kind"] | "fold";
  tone: string;
  isFirst: boolean;
  isLast: boolean;
}) {
  const middle = rowPx / 2;
  const isDashed = kind === "finally" || kind === "fold";
  return (
    <svg className="rail" width={28} height={rowPx} aria-hidden="true">
      {!isFirst && <path className={isDashed ? "is-dashed" : ""} d={`M14 0V${middle}`} />}
      {!isLast && (
        <path className={kind === "fold" ? "is-dashed" : ""} d={`M14 ${middle}V${rowPx}`} />
      )}
      <g className={`node ${tone}`}>{nodeOf(kind, middle)}</g>
    </svg>
  );
}

/** A shape for each kind: a pause for a sleep, a diamond where it waits for a signal, a fork of children. */
function nodeOf(kind: MachineState["kind"] | "fold", y: number) {
  switch (kind) {
    case "start":
      return <circle cx={14} cy={y} r={5} className="is-hollow" />;
    case "end":
      return <circle cx={14} cy={y} r={6} className="is-end" />;
    case "sleep":
      return (
        <>
          <rect x={6} y={y - 8} width={16} height={16} rx={8} />
          <path className="mark" d={`M14 ${y - 4}V${y}L17 ${y + 2}`} />
        </>
      );
    case "signal":
      return <path d={`M14 ${y - 9}L23 ${y}L14 ${y + 9}L5 ${y}Z`} />;
    case "children":
      return (
        <>
          <rect x={6} y={y - 8} width={16} height={16} rx={3} />
          <path
            className="mark"
            d={`M10 ${y}H13M13 ${y - 3}H18M13 ${y + 3}H18M13 ${y - 3}V${y + 3}`}
          />
        </>
      );
    case "fold":
      return null;
    case "work":
    case "finally":
    case "unknown":
      return <circle cx={14} cy={y} r={7} />;
  }
}

const words: readonly (readonly [keyof PlaceCounts, string])[] = [
  ["running", "running"],
  ["ready", "ready"],
  ["retrying", "retrying"],
  ["waiting", "waiting"],
  ["setAside", "set aside"],
];

function countsText(counts: PlaceCounts): string {
  return words
    .flatMap(([what, word]) => {
      const count = counts[what] ?? 0;
      return count === 0 ? [] : [`${countText(count)} ${word}`];
    })
    .join(", ");
}
