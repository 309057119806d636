import { FlotillaError } from "../../base/errors.ts";
import type { TaskContext } from "../task.ts";

/** Something that middleware gives to what runs inside of it, with a type. */
export type ContextValue<Value> = {
  /** Gives it to this run. */
  set(context: TaskContext<unknown>, value: Value): void;
  /** What this run was given. Throws where no middleware has set it. */
  get(context: TaskContext<unknown>): Value;
};

/**
 * Names a value that middleware sets and handlers get. Kept beside the context and not in it, so that
 * its type needs no declaration for the whole program, and two libraries can't take the same name.
 */
export function contextValue<Value>(name: string): ContextValue<Value> {
  const values = new WeakMap<TaskContext<unknown>, { value: Value }>();
  return {
    set: (context, value) => void values.set(context, { value }),
    get(context) {
      const found = values.get(context);
      if (found) return found.value;
      throw new FlotillaError(
        "invalid_middleware",
        `no middleware has set \`${name}\` for the task "${context.name}": is it in \`middleware\` of the config?`,
      );
    },
  };
}
