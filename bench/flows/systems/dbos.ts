import { peer } from "../../systems/peer.ts";
import type { Payload } from "../../systems/system.ts";
import { type FlowSystem, steps } from "./system.ts";

type Workflow = (payload: Payload) => Promise<void>;

type Library = {
  DBOS: {
    setConfig(config: object): void;
    registerWorkflow(workflow: Workflow, options: { name: string }): Workflow;
    runStep(step: () => Promise<void>, options: { name: string }): Promise<void>;
    startWorkflow(workflow: Workflow): (payload: Payload) => Promise<unknown>;
    launch(): Promise<void>;
  };
};

const { DBOS } = await peer<Library>("@dbos-inc/dbos-sdk");

/** DBOS Transact: workflows are called in the process that executes them. */
export const system: FlowSystem = {
  async open(url, _settings, entered) {
    const workflow = DBOS.registerWorkflow(
      async ({ number }) => {
        for (let step = 0; step < steps; step++) {
          await DBOS.runStep(async () => entered(number, step), { name: `step ${step}` });
        }
      },
      { name: "bench" },
    );
    DBOS.setConfig({
      name: "bench",
      systemDatabaseUrl: url,
      // Else it is a hash of the code, and runs of another version aren't recovered.
      applicationVersion: "1",
      logLevel: "error",
    });
    await DBOS.launch();
    return {
      start: (payload) => DBOS.startWorkflow(workflow)(payload),
      finish: (payload) => workflow(payload),
    };
  },
};
