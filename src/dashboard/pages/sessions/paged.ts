import { useState } from "react";
import { errorSentence } from "../../api.ts";
import { useLive } from "../../live.ts";

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

/** Reads a list. Its first page is live; with more pages it stays as it was read, until it is read again. */
export function usePaged<Page extends PageOf>(
  topic: readonly unknown[],
  read: (cursor: string | undefined, signal: AbortSignal) => Promise<Page>,
): Paged<Page> {
  const name = JSON.stringify(topic);
  const [kept, setKept] = useState<{ readonly of: string; readonly pages: readonly Page[] }>();
  const [loading, setLoading] = useState<string>();
  const [failed, setFailed] = useState<{ readonly of: string; readonly text: string }>();
  const stays = kept?.of === name ? kept.pages : undefined;
  const first = useLive(topic, (signal) => read(undefined, signal), { isOff: stays !== undefined });
  const pages = stays ?? (first.data === undefined ? undefined : [first.data]);
  const next = pages?.at(-1)?.next ?? undefined;

  const loadMore = async () => {
    if (pages === undefined || next === undefined || loading === name) return;
    setLoading(name);
    setFailed(undefined);
    // What is shown stays as it is while the rest is read, or the pages wouldn't fit together.
    setKept({ of: name, pages });
    try {
      const page = await read(next, new AbortController().signal);
      setKept({ of: name, pages: [...pages, page] });
    } catch (error) {
      setFailed({ of: name, text: errorSentence(error) });
    } finally {
      setLoading(undefined);
    }
  };
  return {
    pages,
    error: first.error,
    isLive: stays === undefined,
    hasMore: next !== undefined,
    isLoading: loading === name,
    trouble: failed?.of === name ? failed.text : undefined,
    loadMore: () => void loadMore(),
    refetch() {
      setKept(undefined);
      setFailed(undefined);
      void first.refetch();
    },
  };
}
