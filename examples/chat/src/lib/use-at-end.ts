import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

/** So near to the end counts as being there: a finger is never exact. */
const nearPx = 64;

/**
 * Keeps the end of what grows in view, until its reader scrolls up to look at something, and again once
 * they have come back.
 */
export function useAtEnd(): {
  scrollRef: RefObject<HTMLDivElement | null>;
  contentRef: RefObject<HTMLDivElement | null>;
  isAtEnd: boolean;
  toEnd: () => void;
} {
  const scrollRef = useRef<HTMLDivElement>(null);
  const contentRef = useRef<HTMLDivElement>(null);
  const sticks = useRef(true);
  const [isAtEnd, setAtEnd] = useState(true);

  const toEnd = useCallback(() => {
    const scroll = scrollRef.current;
    sticks.current = true;
    setAtEnd(true);
    if (scroll) scroll.scrollTop = scroll.scrollHeight;
  }, []);

  useLayoutEffect(toEnd, [toEnd]);
  useEffect(() => {
    const scroll = scrollRef.current;
    const content = contentRef.current;
    if (!scroll || !content) return;
    let lastTop = scroll.scrollTop;
    const onScroll = () => {
      const gap = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
      // What grows moves the end away without anybody scrolling: only an upward move lets go of it.
      if (gap <= nearPx) sticks.current = true;
      else if (scroll.scrollTop < lastTop) sticks.current = false;
      lastTop = scroll.scrollTop;
      setAtEnd(sticks.current);
    };
    const observer = new ResizeObserver(() => {
      if (sticks.current) scroll.scrollTop = scroll.scrollHeight;
      lastTop = scroll.scrollTop;
    });
    observer.observe(content);
    observer.observe(scroll);
    scroll.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      scroll.removeEventListener("scroll", onScroll);
    };
  }, []);
  return { scrollRef, contentRef, isAtEnd, toEnd };
}
