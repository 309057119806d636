import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import type { StartedFacts, TurnFacts } from "../../asks/sessions.ts";
import {
  axisFacts,
  axisOf,
  type AxisRow,
  costText,
  type TurnRow,
  type TurnStretch,
  type WaitRow,
} from "../../facts/sessions/axis.ts";
import type { TailView } from "../../facts/sessions/tail.ts";
import { durationText, exactCount, exactText } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useNow } from "../../live.ts";
import { Badge, StatusMark, When } from "../../parts/marks.tsx";
import { ShownText } from "../../parts/text.tsx";

/** Turns, waits for people, tasks and what else happened, on one axis of time; the newest is on top. */
export function SessionAxis({
  tail,
  turns,
  started,
  hasMore,
}: {
  tail: TailView;
  turns: readonly TurnFacts[];
  started: readonly StartedFacts[];
  /** There are older turns than these. */
  hasMore: boolean;
}) {
  const nowMs = useNow();
  const { entries, state, throttledMs, firstSeenAtMs } = tail;
  const facts = useMemo(() => axisFacts(entries), [entries]);
  const { rows, isCut } = axisOf({
    facts,
    turns,
    started,
    state,
    throttledMs,
    firstSeenAtMs,
    nowMs,
  });
  const longestMs = Math.max(
    1,
    ...rows.map((row) => (row.type === "turn" ? row.toMs - row.fromMs : 0)),
  );
  return (
    <section className="block axis" aria-label="Axis of turns">
      <h2>
        Turns <span className="soft">the newest first</span>
      </h2>
      {rows.length === 0 ? (
        <p className="soft">No turn has begun yet.</p>
      ) : (
        <>
          <Legend />
          <ol className="axis-rows" tabIndex={0} aria-label="Turns and what else happened">
            {rows.map((row) => (
              <li key={row.key} className={`axis-row of-${row.type}`}>
                <Row row={row} longestMs={longestMs} />
              </li>
            ))}
          </ol>
        </>
      )}
      {(isCut || hasMore) && <p className="soft">Older turns aren&apos;t drawn.</p>}
    </section>
  );
}

const stretchWords: Readonly<Record<TurnStretch["kind"], string>> = {
  queued: "queued",
  throttled: "throttled",
  "first token": "to the first token",
  stream: "streamed",
};
const stretchClasses: Readonly<Record<TurnStretch["kind"], string>> = {
  queued: "of-queued",
  throttled: "of-throttled",
  "first token": "of-first",
  stream: "of-stream",
};

function Legend() {
  return (
    <p className="legend soft" aria-hidden="true">
      {Object.entries(stretchClasses).map(([kind, name]) => (
        <span key={kind}>
          <span className={`swatch ${name}`} /> {kind}
        </span>
      ))}
    </p>
  );
}

function Row({ row, longestMs }: { row: AxisRow; longestMs: number }) {
  switch (row.type) {
    case "turn":
      return <Turn row={row} longestMs={longestMs} />;
    case "wait":
      return <Wait row={row} />;
    case "started":
      return <Started started={row.started} />;
    case "gap":
      return <p className="soft">nothing for {durationText(row.toMs - row.fromMs)}</p>;
    case "stop":
    case "summary":
      return (
        <p>
          {row.type === "stop" ? (
            <>
              stopped by <ShownText text={visibleLine(row.by, 60)} />
            </>
          ) : (
            "summarized"
          )}{" "}
          <span className="soft">
            <When atMs={row.fromMs} />
          </span>
        </p>
      );
  }
}

const tones: Readonly<Record<string, string>> = {
  completed: "plain",
  stopped: "plain",
  dropped: "plain",
  released: "warn",
  cut: "wrong",
  failed: "wrong",
  lost: "wrong",
};

function Turn({ row, longestMs }: { row: TurnRow; longestMs: number }) {
  const { turn, fromMs, toMs, stretches, tools, tookOverFrom, isOpen } = row;
  const { epoch, attempt, agent, podId, outcome, usage, beganAtMs } = turn;
  const percent = (ms: number) => `${Math.max(0, Math.min(100, (ms / longestMs) * 100))}%`;
  return (
    <>
      <p className="axis-line">
        <strong>
          Turn {exactCount(epoch)}
          {attempt > 1 && `, attempt ${attempt}`}
        </strong>
        {isOpen ? (
          <Badge tone="accent">under way</Badge>
        ) : (
          <Badge tone={tones[outcome ?? ""] ?? "plain"}>
            {visibleLine(outcome ?? "ended", 40)}
          </Badge>
        )}
        <span className="soft number axis-end">{durationText(toMs - fromMs)}</span>
      </p>
      <div className="axis-bar" aria-hidden="true">
        {stretches.map((stretch) => (
          <span
            key={stretch.kind}
            className={`stretch ${stretchClasses[stretch.kind]} ${stretch.isOpen ? "is-open" : ""}`}
            title={`${stretchWords[stretch.kind]}: ${durationText(stretch.toMs - stretch.fromMs)}, from ${exactText(stretch.fromMs)}`}
            style={{ width: percent(stretch.toMs - stretch.fromMs) }}
          />
        ))}
      </div>
      <p className="soft axis-facts">
        {stretches
          .map(({ kind, fromMs: from, toMs: to, isOpen: goesOn }) =>
            [stretchWords[kind], durationText(to - from), goesOn ? "so far" : ""]
              .filter((word) => word !== "")
              .join(" "),
          )
          .join(", ")}
      </p>
      <p className="soft axis-facts">
        <When atMs={beganAtMs} /> by <ShownText text={visibleLine(agent, 60)} />
        {podId !== null && (
          <>
            {" "}
            on <code title={podId}>{visibleLine(podId.slice(-12), 40)}</code>
          </>
        )}
        {tools.length > 0 && (
          <>
            , called <ShownText text={visibleLine(tools.join(", "), 160)} />
          </>
        )}
      </p>
      {tookOverFrom !== undefined && (
        <p className="warn axis-facts">
          taken over from{" "}
          <code title={tookOverFrom}>{visibleLine(tookOverFrom.slice(-12), 40)}</code>
        </p>
      )}
      {usage && (
        <p className="soft axis-facts">
          {exactCount(usage.input)} tokens in
          {usage.cached > 0 && ` (${exactCount(usage.cached)} from a cache)`},{" "}
          {exactCount(usage.output)} out
          {usage.cost !== null && `, cost ${costText(usage.cost)}`}
        </p>
      )}
    </>
  );
}

const waitWords = {
  approved: "approved",
  denied: "denied",
  answered: "answered",
  over: "went on without it",
} as const;

function Wait({ row: { tool, signal, isOpen, outcome, by, fromMs, toMs } }: { row: WaitRow }) {
  return (
    <p className="axis-line">
      <span>
        <code>
          <ShownText text={visibleLine(tool, 80)} />
        </code>{" "}
        {isOpen ? "waits" : "waited"} for{" "}
        {signal === undefined ? (
          "a person"
        ) : (
          <>
            the signal <ShownText text={visibleLine(signal, 80)} />
          </>
        )}
      </span>
      {outcome === undefined ? (
        <Badge tone="warn">open</Badge>
      ) : (
        <span className={outcome === "denied" ? "wrong" : "soft"}>
          {waitWords[outcome]}
          {by !== undefined && (
            <>
              {" "}
              by <ShownText text={visibleLine(by, 60)} />
            </>
          )}
        </span>
      )}
      <span className="soft number axis-end">{durationText(toMs - fromMs)}</span>
    </p>
  );
}

function Started({ started: { taskId, name, status, atMs } }: { started: StartedFacts }) {
  return (
    <p className="axis-line">
      <span>
        started{" "}
        <Link to="/tasks/$taskId" params={{ taskId }} title={taskId}>
          <ShownText text={visibleLine(name ?? "what is gone", 80)} />
        </Link>
      </span>
      {status !== null && <StatusMark status={status} />}
      <span className="soft number axis-end">
        <When atMs={atMs} />
      </span>
    </p>
  );
}
