import { useRef, useState } from "react";
import { errorSentence } from "../../api.ts";
import { queryClient, useLive, useReadAgain } from "../../live.ts";

type PageOf = { readonly next: string | null };

/** A list that is read page by page. */
export type Paged<Page> = {
  /** Undefined until the first one is read. */
  readonly pages: readonly Page[] | undefined;
  readonly error: unknown;
  readonly isLive: boolean;
  readonly hasMore: boolean;
  readonly isLoading: boolean;
  /** Why the next page couldn't be read. */
  readonly trouble: string | undefined;
  loadMore(): void;
  /** Begins again with the first page, which is live. */
  refetch(): void;
};

/**
 * Reads a list. Its first page is live; with more pages it stays as it was read, until it is read again: by
 * a person, or after an act, which reads as many pages as are shown.
 */
export function usePaged<Page extends PageOf>(
  topic: readonly unknown[],
  read: (cursor: string | undefined, signal: AbortSignal) => Promise<Page>,
): Paged<Page> {
  const name = JSON.stringify(topic);
  const [kept, setKept] = useState<{ readonly of: string; readonly pages: readonly Page[] }>();
  const [loading, setLoading] = useState<string>();
  const [failed, setFailed] = useState<{ readonly of: string; readonly text: string }>();
  /** The reads of pages that count: a later one takes the place of those before. */
  const latest = useRef<AbortController>(undefined);
  const stays = kept?.of === name ? kept.pages : undefined;
  const first = useLive(topic, (signal) => read(undefined, signal), { isOff: stays !== undefined });
  const pages = stays ?? (first.data === undefined ? undefined : [first.data]);
  const next = pages?.at(-1)?.next ?? undefined;

  /** Does it in place of what is being read; what fails is said below the list. */
  const reading = async (act: (signal: AbortSignal) => Promise<void>) => {
    latest.current?.abort();
    const mine = new AbortController();
    latest.current = mine;
    setFailed(undefined);
    try {
      await act(mine.signal);
    } catch (error) {
      if (!mine.signal.aborted) setFailed({ of: name, text: errorSentence(error) });
    } finally {
      if (latest.current === mine) setLoading(undefined);
    }
  };
  const loadMore = () => {
    if (pages === undefined || next === undefined || loading === name) return;
    setLoading(name);
    // What is shown stays as it is while the rest is read, or the pages wouldn't fit together.
    setKept({ of: name, pages });
    void reading(async (signal) => {
      const page = await read(next, signal);
      if (!signal.aborted) setKept({ of: name, pages: [...pages, page] });
    });
  };
  useReadAgain(() => {
    if (stays === undefined) return;
    void reading(async (signal) => {
      const fresh: Page[] = [];
      for (let cursor: string | undefined; fresh.length < stays.length;) {
        const page = await read(cursor, signal);
        fresh.push(page);
        if (page.next === null) break;
        cursor = page.next;
      }
      if (signal.aborted) return;
      const isOne = fresh.length === 1 && fresh[0]!.next === null;
      // What is left fits on the first page, which is live.
      if (isOne) queryClient.setQueryData(topic, fresh[0]);
      setKept(isOne ? undefined : { of: name, pages: fresh });
    });
  });

  return {
    pages,
    error: first.error,
    isLive: stays === undefined,
    hasMore: next !== undefined,
    isLoading: loading === name,
    trouble: failed?.of === name ? failed.text : undefined,
    loadMore,
    refetch() {
      latest.current?.abort();
      setLoading(undefined);
      setKept(undefined);
      setFailed(undefined);
      void first.refetch();
    },
  };
}
