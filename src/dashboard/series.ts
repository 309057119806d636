import type { UseQueryResult } from "@tanstack/react-query";
import { readAnswer } from "./api.ts";
import type { SeriesFacts } from "./facts/series/lines.ts";
import { type Span, spans } from "./facts/series/span.ts";
import { useLive } from "./live.ts";

/**
 * What was counted over time of a subject, such as `task`, `task:mail` or `throttle:openai gpt`; nothing
 * is asked without one. Pods write once a minute, so it is read now and then.
 */
export function useSeries(subject: string | undefined, span: Span): UseQueryResult<SeriesFacts> {
  const { ms, step } = spans[span];
  return useLive(
    ["series", subject, span],
    // Up to the server's own time: a browser's clock may be wrong.
    (signal) => readAnswer<SeriesFacts>("v1/series", { subject, step, span: ms }, signal),
    { isOff: subject === undefined, isSettled: () => true },
  );
}
