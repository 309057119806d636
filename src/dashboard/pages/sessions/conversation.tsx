import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { errorSentence } from "../../api.ts";
import type { FollowedSession } from "../../asks/follow-session.ts";
import { conversationOf } from "../../facts/sessions/conversation.ts";
import type { TailView } from "../../facts/sessions/tail.ts";
import { exactCount } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { Empty } from "../../parts/states.tsx";
import { Item, type ItemProps } from "./message.tsx";

const estimatedPx = 110;
const overscan = 6;
// Older entries are read before the first one is in sight.
const readAhead = 8;
const nearEndPx = 60;

/** The conversation as its participants see it, from its end: older entries are read as one scrolls. */
export function Conversation({
  tail,
  followed,
  ...props
}: ItemProps & { tail: TailView; followed: FollowedSession }) {
  const { entries, answer, fromSeq } = tail;
  const items = useMemo(() => conversationOf(entries, answer), [entries, answer]);
  const scroller = useRef<HTMLDivElement>(null);
  const [trouble, setTrouble] = useState<string>();
  const hasOlder = fromSeq > 1;
  const virtualizer = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => estimatedPx,
    getItemKey: (index) => items[index]?.key ?? index,
    anchorTo: "end",
    followOnAppend: true,
    scrollEndThreshold: nearEndPx,
    overscan,
  });
  const isBegun = useRef(false);
  useEffect(() => {
    if (isBegun.current || items.length === 0) return;
    isBegun.current = true;
    virtualizer.scrollToEnd();
  }, [items.length, virtualizer]);

  const shown = virtualizer.getVirtualItems();
  const first = shown[0]?.index ?? 0;
  const loadOlder = () => {
    setTrouble(undefined);
    followed.loadOlder().catch((error: unknown) => setTrouble(errorSentence(error)));
  };
  const isNearStart = isBegun.current && hasOlder && first < readAhead;
  useEffect(() => {
    if (isNearStart && trouble === undefined) loadOlder();
    // Again after each page, until enough is there.
  }, [isNearStart, fromSeq]);

  if (items.length === 0 && tail.status !== "loading" && !hasOlder)
    return <Empty title="Nothing has been written yet." />;
  return (
    <section className="conversation" aria-label="Conversation">
      {hasOlder && (
        <p className="soft conversation-older" role="status">
          {trouble === undefined ? (
            `Entries from ${exactCount(fromSeq)} on; older ones are read as you scroll.`
          ) : (
            <>
              <span className="wrong">{visibleLine(trouble, 300)}</span>{" "}
              <button type="button" className="inline" onClick={loadOlder}>
                Try again
              </button>
            </>
          )}
        </p>
      )}
      <div className="conversation-rows" ref={scroller} tabIndex={0} role="log" aria-live="off">
        <div style={{ height: virtualizer.getTotalSize() }} className="track">
          {shown.map(({ index, start, key }) => (
            <div
              key={key}
              ref={virtualizer.measureElement}
              data-index={index}
              className="conversation-row"
              style={{ transform: `translateY(${start}px)` }}
            >
              <Item item={items[index]!} {...props} />
            </div>
          ))}
        </div>
      </div>
    </section>
  );
}
