import { afterAll } from "vitest";
import { usualKinds } from "../../store/contract/kinds.ts";
import { closeStores } from "../contract/harness.ts";
import { throttleContract } from "../contract/throttle.ts";

afterAll(closeStores);

for (const kind of usualKinds) throttleContract(kind);
