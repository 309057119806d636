import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type RefObject, useEffect, useMemo, useRef, useState } from "react";
import type { TaskFacts, TaskQuery } from "../api.ts";
import { bulkFilterOf, possibleBulks, type TickedRow } from "../facts/bulk.ts";
import { remarkOf } from "../facts/remark.ts";
import { counted } from "../facts/spans.ts";
import { type AddressTrouble, addressTrouble } from "../facts/tasks/filter.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLiveTasks, useMay, useNow, useSeesAll } from "../live.ts";
import { LiveMark } from "../parts/blocks.tsx";
import { BulkDialog, BulkLines } from "../parts/bulk-dialog.tsx";
import { StatusMark, When } from "../parts/marks.tsx";
import { Empty, Failed, PageTitle, Ready } from "../parts/states.tsx";
import { shortId, ShownText } from "../parts/text.tsx";
import { TickedBar, type Ticks, useTicks } from "../parts/ticked-bar.tsx";
import { FilterBar } from "./filter-bar.tsx";
import "../styles/tasks.css";

const rowPx = 41;
const overscan = 12;
// Loads the next page before its rows are in sight.
const loadAhead = 30;

/** Where is mine? The tasks that match the address, newest first. */
export function TasksPage() {
  const filter = useSearch({ from: "/tasks" });
  const trouble = addressTrouble(filter);
  const list = useLiveTasks(filter, { isOff: trouble !== undefined });
  const [isOnAll, setOnAll] = useState(false);
  const mayAct = useMay("fleet:operate");
  const rows = useMemo(() => list.data?.pages.flatMap(({ tasks }) => tasks), [list.data]);
  const isLive = (list.data?.pages.length ?? 1) <= 1;
  const address = JSON.stringify(filter);
  const isFiltered = address !== "{}";
  const ticks = useTicks(address);

  return (
    <div className="filling">
      <PageTitle
        name="Tasks"
        aside={
          <div className="page-aside">
            {mayAct && isFiltered && !trouble && !list.error && (
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
      <BulkLines noun="task" />
      {trouble && <UnreadAddress filter={filter} trouble={trouble} />}
      {!trouble && (
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
              <TaskTable
                tasks={tasks}
                ticks={ticks}
                hasMore={list.hasNextPage}
                isLoading={list.isFetchingNextPage}
                // A page that was searched in vain isn't followed by others unless a person wants that.
                // One that failed is asked for again by a person, not by every frame.
                error={list.isFetchNextPageError ? list.error : undefined}
                isFruitful={(list.data?.pages.at(-1)?.tasks.length ?? 0) > 0}
                lookedBackToMs={lookedBackTo(list.data?.pages.at(-1))}
                loadMore={() => void list.fetchNextPage()}
              />
            )
          }
        </Ready>
      )}
      <TickedBar noun="task" rows={(rows ?? []).map(tickedRow)} ticks={ticks} />
      {isOnAll && (
        <BulkDialog
          target={{ noun: "task", filter: bulkFilterOf(filter), acts: possibleBulks(filter) }}
          onClose={() => setOnAll(false)}
        />
      )}
    </div>
  );
}

function tickedRow(task: TaskFacts): TickedRow {
  const isSetAside = task.status === "pending" && task.setAside !== null;
  return { id: task.taskId, status: task.status, isSetAside };
}

/** An address that is no filter. Nothing is asked for, since a list without it would be of something else. */
function UnreadAddress({
  filter,
  trouble: { field, text },
}: {
  filter: TaskQuery;
  trouble: AddressTrouble;
}) {
  const navigate = useNavigate();
  const leaveOut = () => {
    const rest = Object.entries(filter).filter(([name]) => name !== field);
    void navigate({ to: "/tasks", search: Object.fromEntries(rest) as TaskQuery });
  };
  return (
    <div className="failed" role="alert">
      <p>
        <ShownText text={visibleLine(text, 500)} />
      </p>
      <button type="button" className="button" onClick={leaveOut}>
        Leave it out
      </button>
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
  ticks: Ticks;
  hasMore: boolean;
  isLoading: boolean;
  error: unknown;
  isFruitful: boolean;
  lookedBackToMs: number | undefined;
  loadMore: () => void;
};

function TaskTable(props: TableProps) {
  const { tasks, ticks, hasMore, isLoading, error, isFruitful, lookedBackToMs, loadMore } = props;
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
    const isNear = last >= tasks.length - loadAhead;
    if (hasMore && isFruitful && !error && !isLoading && isNear) loadMore();
  }, [hasMore, isFruitful, error, isLoading, last, tasks.length, loadMore]);

  const isAllTicked = tasks.every(({ taskId }) => ticks.has(taskId));
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
                onChange={() => ticks.set(isAllTicked ? [] : tasks.map(({ taskId }) => taskId))}
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
              className={`task-row ${ticks.has(tasks[index]!.taskId) ? "is-ticked" : ""}`}
              style={{ transform: `translateY(${start}px)` }}
            >
              <TaskCells
                task={tasks[index]!}
                isTicked={ticks.has(tasks[index]!.taskId)}
                onToggle={mayAct ? ticks.toggle : undefined}
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
      {Boolean(error) && !isLoading && <Failed error={error} onRetry={loadMore} />}
      {hasMore && !isFruitful && !error && !isLoading && (
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
