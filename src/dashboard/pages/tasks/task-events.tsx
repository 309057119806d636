import { useState } from "react";
import { api, errorSentence, type StepPage, type TaskFacts, type TaskWhole } from "../../api.ts";
import { bytesText, counted, durationText } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { Block } from "../../parts/blocks.tsx";
import { EventItem } from "../../parts/event-item.tsx";
import { Badge, When, Wide } from "../../parts/marks.tsx";
import { LongText } from "../../parts/text.tsx";

/** Steps and events of a task: their first pages are live, and the rest is read page by page. */

type Numbered = { readonly seq: number };

/** A list by its pages, which only grows at its end. */
type Growing<Item> = {
  readonly items: readonly Item[];
  /** Whether there is more, as far as is known. */
  readonly hasMore: boolean;
  /** Whether there may be, since the task goes on. */
  readonly mayHaveMore: boolean;
  readonly isLoading: boolean;
  readonly trouble: string | undefined;
  loadMore(): void;
};

type PageOf<Item> = { readonly items: readonly Item[]; readonly next: number | null };

function useGrowing<Item extends Numbered>(
  { status }: Pick<TaskFacts, "status">,
  first: PageOf<Item>,
  read: (after: number, signal: AbortSignal) => Promise<PageOf<Item>>,
): Growing<Item> {
  const [loaded, setLoaded] = useState<PageOf<Item>>();
  const [isLoading, setLoading] = useState(false);
  const [trouble, setTrouble] = useState<string>();
  // Steps may have been forgotten since, so that the first page is all there is.
  const rest = first.next === null ? undefined : loaded;
  const items = rest ? [...first.items, ...rest.items] : first.items;
  const isOpen = status === "pending" || status === "claimed";
  const next = rest ? rest.next : first.next;
  const loadMore = async () => {
    const last = items.at(-1);
    if (isLoading || !last) return;
    setLoading(true);
    setTrouble(undefined);
    try {
      const page = await read(last.seq, new AbortController().signal);
      setLoaded({ items: [...(rest?.items ?? []), ...page.items], next: page.next });
    } catch (error) {
      setTrouble(errorSentence(error));
    } finally {
      setLoading(false);
    }
  };
  return {
    items,
    hasMore: next !== null,
    // The first page is live, unless there is more than it has.
    mayHaveMore: next === null && rest !== undefined && isOpen,
    isLoading,
    trouble,
    loadMore: () => void loadMore(),
  };
}

/** Reads on, where there is more or may be. */
function LoadMore<Item>({ of, onMore }: { of: Growing<Item>; onMore?: () => void }) {
  const { hasMore, mayHaveMore, isLoading, trouble, loadMore } = of;
  if (!hasMore && !mayHaveMore) return null;
  return (
    <p>
      <button
        type="button"
        className="inline"
        disabled={isLoading}
        onClick={() => {
          loadMore();
          onMore?.();
        }}
      >
        {isLoading ? "Loading …" : hasMore ? "Show more" : "Look for later ones"}
      </button>
      {trouble !== undefined && (
        <span className="wrong" role="alert">
          {" "}
          {visibleLine(trouble, 500)}
        </span>
      )}
    </p>
  );
}

/** What is stored of the task's steps. */
export function StepBlock({ task, page }: { task: TaskFacts; page: StepPage }) {
  const first = { items: page.steps, next: page.next };
  const growing = useGrowing(task, first, async (after, signal) => {
    const { steps, next } = await api.steps(task.taskId, after, signal);
    return { items: steps, next };
  });
  const { items } = growing;
  if (items.length === 0) return null;
  return (
    <Block title="Steps">
      <Wide label="Steps">
        <table>
          <thead>
            <tr>
              <th scope="col">Step</th>
              <th scope="col">Kind</th>
              <th scope="col" className="number">
                Took
              </th>
              <th scope="col" className="number">
                Size
              </th>
              <th scope="col" className="number">
                Stored
              </th>
            </tr>
          </thead>
          <tbody>
            {items.map(({ seq, transition, key, kind, startedAtMs, atMs, bytes, requested }) => (
              <tr key={seq}>
                <th scope="row">
                  <LongText
                    text={transition === null ? key : `${transition} / ${key}`}
                    maxChars={200}
                  />{" "}
                  {!requested && <Badge>not asked for any more</Badge>}
                </th>
                <td>
                  <Badge tone={kind === "failed" ? "wrong" : "plain"}>{kind}</Badge>
                </td>
                <td className="number">{durationText(atMs - startedAtMs)}</td>
                <td className="number">{bytesText(bytes)}</td>
                <td className="number soft">
                  <When atMs={atMs} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      <LoadMore of={growing} />
    </Block>
  );
}

// Drawn when they are opened, since a task may have a thousand, each with its detail.
const eventsAtOnce = 50;

/** What has happened to the task, the oldest first. */
export function Events({ whole: { task, events, next } }: { whole: TaskWhole }) {
  const [isOpen, setOpen] = useState(false);
  const [shown, setShown] = useState(eventsAtOnce);
  const first = { items: events, next };
  const growing = useGrowing(task, first, async (after, signal) => {
    const page = await api.taskEvents(task.taskId, after, signal);
    return { items: page.events, next: page.next };
  });
  const { items, hasMore } = growing;
  const showMore = () => setShown(shown + eventsAtOnce * 4);
  if (items.length === 0) return null;
  return (
    <section className="block">
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <h2>
            {hasMore ? `First ${counted(items.length, "event")}` : counted(items.length, "event")}
          </h2>
        </summary>
        <ol className="events">
          {items.slice(0, isOpen ? shown : 0).map((event) => (
            <EventItem key={event.seq} event={event} />
          ))}
        </ol>
        {items.length > shown ? (
          <button type="button" className="inline" onClick={showMore}>
            {counted(items.length - shown, "more event")}
          </button>
        ) : (
          <LoadMore of={growing} onMore={showMore} />
        )}
      </details>
    </section>
  );
}
