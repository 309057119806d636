import { afterAll } from "vitest";
import { usualKinds } from "../store/kinds.contract.ts";
import { closeStores } from "./queue.contract.ts";
import { throttleContract } from "./throttle.contract.ts";

afterAll(closeStores);

for (const kind of usualKinds) throttleContract(kind);
