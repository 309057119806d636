import { FlotillaError } from "../../base/errors.ts";
import type { Next, Middleware } from "../model.ts";

/** Every attempt on the pod pays for its middleware; more than this is a mistake. */
const maxMiddleware = 100;

/** Throws unless `given` is a list of middleware. */
export function checkMiddleware(given: unknown): asserts given is readonly Middleware[] {
  if (!Array.isArray(given) || given.length > maxMiddleware) {
    throw new FlotillaError(
      "invalid_option",
      `middleware must be an array of ${maxMiddleware} functions at most`,
    );
  }
  const odd = given.findIndex((each) => typeof each !== "function");
  if (odd === -1) return;
  throw new FlotillaError("invalid_option", `middleware[${odd}] must be a function`);
}

type Layer<Context> = (context: Context, next: Next) => unknown;

/** Runs a handler inside its middleware, the first outermost. */
export function runAround<Context>(
  middleware: readonly Layer<Context>[],
  context: Context,
  run: (context: Context) => unknown,
): Promise<unknown> {
  const from = (at: number): Promise<unknown> => {
    const layer = middleware[at];
    if (layer === undefined) return (async () => run(context))();
    return runLayer(layer, context, () => from(at + 1));
  };
  return from(0);
}

/**
 * Enforces the contract of one middleware. It can neither run the handler twice, nor let it run on
 * after the attempt has ended, nor leave an unhandled rejection, which would end the process.
 */
async function runLayer<Context>(layer: Layer<Context>, context: Context, goOn: Next) {
  let going: Promise<unknown> | undefined;
  let settled = false;
  let over = false;
  let fault: FlotillaError | undefined;
  const next: Next = () => {
    if (going === undefined && !over) {
      going = goOn();
      const settle = () => void (settled = true);
      going.then(settle, settle);
      return going;
    }
    fault ??= misused(layer, over ? "called `next` after it had ended" : "called `next` twice");
    const refused = Promise.reject(fault);
    refused.catch(() => {});
    return refused;
  };
  try {
    const returned = await layer(context, next);
    if (going === undefined) fault ??= misused(layer, "returned without calling `next`");
    else if (!settled) fault ??= misused(layer, "returned without waiting for `next`");
    if (fault) throw fault;
    return returned;
  } finally {
    over = true;
    await (going as Promise<unknown> | undefined)?.catch(() => {});
  }
}

function misused({ name }: { readonly name: string }, what: string): FlotillaError {
  const which = name ? `the middleware "${name}"` : "a middleware";
  return new FlotillaError("invalid_middleware", `${which} ${what}`);
}
