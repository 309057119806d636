import { ROOT_CONTEXT, SpanKind, SpanStatusCode } from "@opentelemetry/api";
import { contextOfText } from "../base/trace-context.ts";
import { activeTracer, inSpan, quietly, remote } from "../tasks/trace.ts";
import type { TurnSpan, TurnTraced } from "../sessions/turns/parts.ts";

/**
 * The span of one attempt at an answer, below what has sent the message that it answers. It says which
 * turn of which session it is and how it ended, and nothing of what was said: not even the text of an
 * error, which may be the agent's.
 */
export function startTurnSpan(turn: TurnTraced, podId: string): TurnSpan | undefined {
  const tracer = activeTracer();
  if (tracer === undefined) return undefined;
  const span = quietly(() =>
    tracer.startSpan(
      `turn ${turn.agent}`,
      {
        kind: SpanKind.INTERNAL,
        attributes: {
          "flotilla.session.id": turn.sessionId,
          "flotilla.session.tenant": turn.tenant,
          "flotilla.agent.name": turn.agent,
          "flotilla.turn.epoch": turn.epoch,
          "flotilla.turn.attempt": turn.attempt,
          "flotilla.turn.trigger": turn.trigger,
          "flotilla.pod.id": podId,
        },
      },
      // Never what happens to be active: the end of another turn may have begun this one.
      remote(ROOT_CONTEXT, contextOfText(turn.trace)),
    ),
  );
  if (span === undefined) return undefined;
  return {
    run: (work) => inSpan(span, work),
    end({ outcome, chunks, error }) {
      quietly(() => {
        span.setAttribute("flotilla.turn.outcome", outcome);
        span.setAttribute("flotilla.turn.chunks", chunks);
        if (error !== undefined) {
          span.setAttribute("error.type", error);
          span.setStatus({ code: SpanStatusCode.ERROR, message: error });
        }
        span.end();
      });
    },
  };
}
