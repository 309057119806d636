import { Link, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type RefObject, useEffect, useMemo, useRef, useState } from "react";
import { api, errorSentence, type TaskFacts } from "../api.ts";
import { possibleActs, remarkOf } from "../facts/remark.ts";
import { counted } from "../facts/spans.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLiveTasks, useMay, useNow, useSeesAll } from "../live.ts";
import { ActDialog, type PlannedAct } from "../parts/act-dialog.tsx";
import { LiveMark } from "../parts/blocks.tsx";
import { StatusMark, When } from "../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../parts/states.tsx";
import { shortId, ShownText } from "../parts/text.tsx";
import { FilterBar } from "./filter-bar.tsx";
import { BulkDialog, BulkLines } from "./tasks/bulk-dialog.tsx";
import "../styles/tasks.css";

const rowPx = 41;
const overscan = 12;
// Loads the next page before its rows are in sight.
const loadAhead = 30;

/** Where is mine? The tasks that match the address, newest first. */
export function TasksPage() {
  const filter = useSearch({ from: "/tasks" });
  const list = useLiveTasks(filter);
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set());
  const [plan, setPlan] = useState<PlannedAct>();
  const [isOnAll, setOnAll] = useState(false);
  const nowMs = useNow();
  const mayAct = useMay("fleet:operate");
  const rows = useMemo(() => list.data?.pages.flatMap(({ tasks }) => tasks), [list.data]);
  const isLive = (list.data?.pages.length ?? 1) <= 1;
  const address = JSON.stringify(filter);
  const isFiltered = address !== "{}";
  useEffect(() => setTicked(new Set()), [address]);

  return (
    <div className="filling">
      <PageTitle
        name="Tasks"
        aside={
          <div className="page-aside">
            {mayAct && isFiltered && !list.error && (
              <button type="button" className="button small" onClick={() => setOnAll(true)}>
                All that match …
              </button>
            )}
            <LiveMark isLive={isLive} onRead={() => void list.refetch()} />
          </div>
        }
      >
        Tasks
      </PageTitle>
      <FilterBar filter={filter} />
      <BulkLines nowMs={nowMs} />
      <Ready of={{ data: rows, error: list.error, refetch: list.refetch }} what="tasks">
        {(tasks) =>
          tasks.length === 0 && list.hasNextPage ? (
            <NoneSoFar
              lookedBackToMs={lookedBackTo(list.data?.pages.at(-1))}
              isLooking={list.isFetchingNextPage}
              onMore={() => void list.fetchNextPage()}
            />
          ) : tasks.length === 0 ? (
            <NoTasks isFiltered={isFiltered} />
          ) : (
            <>
              <TaskTable
                tasks={tasks}
                ticked={ticked}
                onTick={setTicked}
                hasMore={list.hasNextPage}
                isLoading={list.isFetchingNextPage}
                // A page that was searched in vain isn't followed by others unless a person wants that.
                isFruitful={(list.data?.pages.at(-1)?.tasks.length ?? 0) > 0}
                lookedBackToMs={lookedBackTo(list.data?.pages.at(-1))}
                loadMore={() => void list.fetchNextPage()}
              />
              <Chosen
                tasks={tasks.filter(({ taskId }) => ticked.has(taskId))}
                onPlan={setPlan}
                onClear={() => setTicked(new Set())}
              />
            </>
          )
        }
      </Ready>
      {plan && <ActDialog plan={plan} onClose={() => setPlan(undefined)} />}
      {isOnAll && <BulkDialog filter={filter} onClose={() => setOnAll(false)} />}
    </div>
  );
}

/** A list that looks no further at once than the store can bear. */
function NoneSoFar({
  lookedBackToMs,
  isLooking,
  onMore,
}: {
  lookedBackToMs: number | undefined;
  isLooking: boolean;
  onMore: () => void;
}) {
  return (
    <Empty title="No task matches the filter so far.">
      {lookedBackToMs !== undefined && (
        <>
          Looked back to <When atMs={lookedBackToMs} />.{" "}
        </>
      )}
      <button type="button" className="inline" disabled={isLooking} onClick={onMore}>
        {isLooking ? "Looking …" : "Look further back"}
      </button>
    </Empty>
  );
}

/** How far back a page has looked, of a server that tells. */
function lookedBackTo(page: object | undefined): number | undefined {
  const { lookedBackTo: atMs } = (page ?? {}) as { readonly lookedBackTo?: unknown };
  return typeof atMs === "number" ? atMs : undefined;
}

function NoTasks({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered)
    return (
      <Empty title="No task matches the filter.">
        <Link to="/tasks" search={{}}>
          Show all tasks
        </Link>
      </Empty>
    );
  return (
    <Empty title="There are no tasks yet." command={`flotilla enqueue mail '{"to":"ada"}'`}>
      This stores one:
    </Empty>
  );
}

type TableProps = {
  tasks: readonly TaskFacts[];
  ticked: ReadonlySet<string>;
  onTick: (ticked: ReadonlySet<string>) => void;
  hasMore: boolean;
  isLoading: boolean;
  isFruitful: boolean;
  lookedBackToMs: number | undefined;
  loadMore: () => void;
};

function TaskTable(props: TableProps) {
  const { tasks, ticked, onTick, hasMore, isLoading, isFruitful, lookedBackToMs, loadMore } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const seesAll = useSeesAll();
  const mayAct = useMay("fleet:operate");
  const virtualizer = useVirtualizer({
    count: tasks.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowPx,
    getItemKey: (index) => tasks[index]?.taskId ?? index,
    overscan,
  });
  const shown = virtualizer.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (hasMore && isFruitful && !isLoading && last >= tasks.length - loadAhead) loadMore();
  }, [hasMore, isFruitful, isLoading, last, tasks.length, loadMore]);

  const toggle = (taskId: string) => {
    const next = new Set(ticked);
    if (!next.delete(taskId)) next.add(taskId);
    onTick(next);
  };
  const isAllTicked = tasks.every(({ taskId }) => ticked.has(taskId));
  const onKeyDown = useRowKeys(scroller, tasks.length, (index) => {
    virtualizer.scrollToIndex(index);
  });

  return (
    <div
      className={`tasks ${mayAct ? "" : "is-read-only"}`}
      role="table"
      aria-label="Tasks, newest first"
      aria-rowcount={hasMore ? -1 : tasks.length + 1}
    >
      <div role="rowgroup">
        <div role="row" aria-rowindex={1} className="task-row task-head">
          {mayAct && (
            <span role="columnheader" className="tick">
              <input
                type="checkbox"
                aria-label={`Tick all ${counted(tasks.length, "loaded task")}`}
                checked={isAllTicked}
                onChange={() =>
                  onTick(isAllTicked ? new Set() : new Set(tasks.map(({ taskId }) => taskId)))
                }
              />
            </span>
          )}
          <span role="columnheader">Status</span>
          <span role="columnheader">Name</span>
          <span role="columnheader">Remark</span>
          <span role="columnheader">{seesAll ? "Tenant" : "Key"}</span>
          <span role="columnheader">Id</span>
          <span role="columnheader" className="number">
            Created
          </span>
        </div>
      </div>
      <div className="task-rows" role="rowgroup" ref={scroller} onKeyDown={onKeyDown}>
        <div role="presentation" style={{ height: virtualizer.getTotalSize() }} className="track">
          {shown.map(({ index, start, key }) => (
            <div
              key={key}
              role="row"
              ref={virtualizer.measureElement}
              data-index={index}
              aria-rowindex={index + 2}
              className={`task-row ${ticked.has(tasks[index]!.taskId) ? "is-ticked" : ""}`}
              style={{ transform: `translateY(${start}px)` }}
            >
              <TaskCells
                task={tasks[index]!}
                isTicked={ticked.has(tasks[index]!.taskId)}
                onToggle={mayAct ? toggle : undefined}
                showsTenant={seesAll}
              />
            </div>
          ))}
        </div>
      </div>
      {isLoading && (
        <p className="soft loading-more" role="status">
          Loading more …
        </p>
      )}
      {hasMore && !isFruitful && !isLoading && (
        <p className="soft loading-more">
          {lookedBackToMs !== undefined && (
            <>
              Looked back to <When atMs={lookedBackToMs} />, and there may be more.{" "}
            </>
          )}
          <button type="button" className="inline" onClick={loadMore}>
            Look further back
          </button>
        </p>
      )}
    </div>
  );
}

type CellsProps = {
  task: TaskFacts;
  isTicked: boolean;
  onToggle: ((taskId: string) => void) | undefined;
  showsTenant: boolean;
};

function TaskCells({ task, isTicked, onToggle, showsTenant }: CellsProps) {
  const { taskId, name, tenant, key, status, createdAtMs } = task;
  const remark = remarkOf(task, useNow());
  return (
    <>
      {onToggle && (
        <span role="cell" className="tick">
          <input
            type="checkbox"
            aria-label={`Tick ${visibleLine(name, 60)} ${shortId(taskId)}`}
            checked={isTicked}
            onChange={() => onToggle(taskId)}
          />
        </span>
      )}
      <span role="cell" className="cell-status">
        <StatusMark status={status} />
      </span>
      <span role="cell" className="cell-name cut">
        <Link to="/tasks/$taskId" params={{ taskId }} data-row-link="">
          <ShownText text={name} />
        </Link>
      </span>
      <span role="cell" className={`cell-remark cut ${remark?.isWrong ? "wrong" : "soft"}`}>
        {remark && <ShownText text={visibleLine(remark.text, 200)} />}
      </span>
      <span role="cell" className="cell-tenant cut soft">
        {(showsTenant ? tenant : key) !== null && (
          <ShownText text={visibleLine((showsTenant ? tenant : key) ?? "", 100)} />
        )}
      </span>
      <span role="cell" className="cell-id cut" title={taskId}>
        <code>{shortId(taskId)}</code>
      </span>
      <span role="cell" className="cell-when number soft">
        <When atMs={createdAtMs} />
      </span>
    </>
  );
}

/** `j` and `k` move the focus from row to row, and `x` ticks. The focus is the place in the list. */
function useRowKeys(
  scroller: RefObject<HTMLDivElement | null>,
  count: number,
  scrollTo: (index: number) => void,
) {
  const focusRow = (index: number, triesLeft = 10) => {
    const row = scroller.current?.querySelector(`[data-index="${index}"] [data-row-link]`);
    if (row instanceof HTMLElement) return row.focus();
    // Rows that weren't in sight are drawn in a later frame.
    if (triesLeft > 0) requestAnimationFrame(() => focusRow(index, triesLeft - 1));
  };
  useEffect(() => {
    const onFirst = (event: globalThis.KeyboardEvent) => {
      const isElsewhere = !scroller.current?.contains(document.activeElement);
      const isFree = !document.querySelector("dialog[open]") && !event.ctrlKey && !event.metaKey;
      const isTyping = document.activeElement?.matches("input, select, textarea");
      if (event.key === "j" && isElsewhere && isFree && !isTyping) focusRow(0);
    };
    document.addEventListener("keydown", onFirst);
    return () => document.removeEventListener("keydown", onFirst);
  });
  return (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = (event.target as Element).closest("[data-index]");
    const at = Number(row?.getAttribute("data-index"));
    if (!row || Number.isNaN(at)) return;
    const steps: Readonly<Record<string, number>> = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
    const step = steps[event.key];
    if (step !== undefined) {
      const next = Math.min(count - 1, Math.max(0, at + step));
      scrollTo(next);
      focusRow(next);
    } else if (event.key === "x") {
      row.querySelector<HTMLInputElement>("input[type=checkbox]")?.click();
    } else return;
    event.preventDefault();
  };
}

/** Acts on the ticked rows. */
function Chosen({
  tasks,
  onPlan,
  onClear,
}: {
  tasks: readonly TaskFacts[];
  onPlan: (plan: PlannedAct) => void;
  onClear: () => void;
}) {
  const mayAct = useMay("fleet:operate");
  if (tasks.length === 0 || !mayAct) return null;
  const retried = tasks.filter((task) => possibleActs(task).retry);
  const cancelled = tasks.filter((task) => possibleActs(task).cancel);
  const planFor = (
    chosen: readonly TaskFacts[],
    what: Pick<PlannedAct, "title" | "verb" | "isHarmful" | "explanation">,
    done: string,
    one: (taskId: string, actId: string) => Promise<unknown>,
  ): PlannedAct => ({
    ...what,
    perform: async ({ actId }) => {
      const text = await performEach(chosen, done, (taskId, at) => one(taskId, `${actId}-${at}`));
      onClear();
      return text;
    },
  });
  return (
    <div className="chosen" role="region" aria-label="Ticked tasks">
      <span>{counted(tasks.length, "task")} ticked</span>
      {retried.length > 0 && (
        <button
          type="button"
          className="button small"
          onClick={() =>
            onPlan(
              planFor(
                retried,
                {
                  title: `Retry ${counted(retried.length, "task")}?`,
                  verb: "Retry",
                  explanation: <p>Each starts over, and keeps its stored steps.</p>,
                },
                "retried",
                (taskId, actId) => api.retryTask(taskId, { actId, fromStart: false }),
              ),
            )
          }
        >
          Retry {retried.length}
        </button>
      )}
      {cancelled.length > 0 && (
        <button
          type="button"
          className="button small"
          onClick={() =>
            onPlan(
              planFor(
                cancelled,
                {
                  title: `Cancel ${counted(cancelled.length, "task")}?`,
                  verb: "Cancel them",
                  isHarmful: true,
                  explanation: <p>What waits never runs. What runs is asked to stop.</p>,
                },
                "cancelled",
                (taskId, actId) => api.cancelTask(taskId, { actId }),
              ),
            )
          }
        >
          Cancel {cancelled.length}
        </button>
      )}
      <button type="button" className="inline" onClick={onClear}>
        Untick all
      </button>
    </div>
  );
}

/** Acts on one task after the other. What has changed meanwhile is refused, and the rest goes on. */
async function performEach(
  tasks: readonly TaskFacts[],
  done: string,
  one: (taskId: string, at: number) => Promise<unknown>,
): Promise<string> {
  const refusals: string[] = [];
  for (const [at, { taskId }] of tasks.entries()) {
    try {
      await one(taskId, at);
    } catch (error) {
      refusals.push(errorSentence(error));
    }
  }
  const count = tasks.length - refusals.length;
  const text = `${counted(count, "task")} ${done}.`;
  return refusals.length === 0
    ? text
    : `${text} ${counted(refusals.length, "other")} refused: ${refusals[0]}`;
}
