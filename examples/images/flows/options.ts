import { sorted } from "./sorted.ts";

export type FlowsOptions = {
  /** Where images come from. It isn't part of a run, so that a run goes on when it has moved. */
  readonly registry: string;
  /** Run around every transition, outside of our own. */
  readonly interceptors?: readonly Interceptor[];
};

export type Interceptor = (context: StepContext, next: () => Promise<unknown>) => unknown;

/** What the interceptors of this example look at. */
export type StepContext = {
  readonly flow: string;
  readonly transition: string;
  readonly attempt: number;
  readonly runId: string;
};

export function interceptorsOf({
  interceptors = [],
}: Pick<FlowsOptions, "interceptors">): Interceptor[] {
  return [...interceptors, sorted];
}
