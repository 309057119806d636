import { hasCode } from "../../src/base/errors.ts";
import { monotonicMs } from "./ledger.ts";

/**
 * What producers asked for, and the answers they got. A call that may or may not have been stored is
 * unknown: it proves nothing either way.
 */
export type Operation = {
  readonly kind: "enqueue" | "cancel" | "wait";
  readonly type: "ok" | "fail" | "unknown";
  readonly askedMs: number;
  readonly toldMs: number;
  /** The tasks it was about, as far as they are known. */
  readonly tasks: readonly string[];
  readonly key?: string;
  readonly delayMs?: number;
  readonly said?: unknown;
};

type Asked = Pick<Operation, "kind" | "key" | "delayMs">;

export function createHistory() {
  const operations: Operation[] = [];
  return {
    operations,
    /** Notes one call, however it ends. */
    async note<Answer>(
      asked: Asked,
      call: () => Promise<Answer>,
      tasksOf: (answer: Answer) => readonly string[],
    ): Promise<Answer | undefined> {
      const askedMs = monotonicMs();
      const end = (rest: Pick<Operation, "type" | "tasks" | "said">) =>
        operations.push({ ...asked, askedMs, toldMs: monotonicMs(), ...rest });
      try {
        const said = await call();
        end({ type: "ok", tasks: tasksOf(said), said });
        return said;
      } catch (error) {
        const unknown = hasCode(error, "unknown_outcome", "timeout", "closed");
        end({ type: unknown ? "unknown" : "fail", tasks: [], said: String(error) });
        return undefined;
      }
    },
  };
}

export type History = ReturnType<typeof createHistory>;
