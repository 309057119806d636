import * as steps from "../../src/steps/sql.ts";
import { noStatement, type RoomStatements, sqlFile } from "./examples.ts";

const owner = { ownerId: "task-1", part: "" };

export const stepStatements: RoomStatements = {
  "src/steps/sql.ts": sqlFile(steps, {
    readSteps: () => steps.readSteps(owner),
    readStepsOfMany: () => steps.readStepsOfMany([owner, { ownerId: "task-2", part: "" }]),
    readStepValue: () => steps.readStepValue(owner, "read"),
    findStep: () => steps.findStep(owner, { key: "read", seq: 3, token: 2 }),
    toStoredStep: noStatement,
  }),
};
