import { join } from "node:path";
import type { Runs, TaskHandler } from "flotilla";
import { imageFlows, type ImageFlows } from "../../../examples/images/flows/image.ts";
import { openHome } from "../../../examples/images/home.ts";
import type { Interceptor } from "../../../src/flows/machine.ts";
import { flowHandler } from "../../../src/flows/drive/drive.ts";

export type ImagesGiven = {
  /** Where the images come from. */
  readonly registry: string;
  /** Where the homes are, each named by the key of the run that fills it. */
  readonly folder: string;
};

const names = ["image", "download", "unpack", "activate"] as const;

/** A run by its place in its family, under the name of its home. */
export function imageKey(home: string, flow: string, payload: string): string {
  if (flow === "image") return `${home}/image`;
  const { digest = "" } = JSON.parse(payload) as { digest?: string };
  return `${home}/image/${flow}${digest.slice(-8)}`;
}

/**
 * The flows of the images example for many homes at once, so that one process can be killed at a point of
 * each. They have no queues: what is stopped for good in one home would keep its place from the others.
 */
export function imagesOf(
  { registry, folder }: ImagesGiven,
  interceptor: Interceptor,
  runs: () => Runs,
) {
  const flows = new Map<string, Promise<ImageFlows>>();
  const flowsOf = async (home: string): Promise<ImageFlows> => {
    const opened = await openHome(join(folder, home));
    const made = imageFlows(opened, { registry, interceptors: [interceptor] });
    for (const each of Object.values(made)) Object.assign(each, { queue: undefined });
    return made;
  };
  const opened = (home: string): Promise<ImageFlows> => {
    const known = flows.get(home) ?? flowsOf(home);
    flows.set(home, known);
    return known;
  };
  const homeOf = async (runId: string): Promise<string> => {
    const run = (await runs().get(runId))!;
    return run.parentId === null ? run.key! : homeOf(run.parentId);
  };

  const handlers = async (): Promise<TaskHandler[]> => {
    const any = await opened("any");
    return names.map((name) => {
      const handler = flowHandler(any[name]);
      return {
        ...handler,
        flow: {
          version: handler.flow!.version,
          async drive(running, parts) {
            const home = await opened(await homeOf(running.claim.taskId));
            return flowHandler(home[name]).flow!.drive(running, parts);
          },
        },
      };
    });
  };
  return { handlers, homeOf };
}
