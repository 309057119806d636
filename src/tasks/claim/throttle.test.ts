import { afterAll } from "vitest";
import { usualKinds } from "../../store/kinds.contract.ts";
import { closeStores } from "../../queue/queue.contract.ts";
import { throttleContract } from "../../queue/throttle.contract.ts";

afterAll(closeStores);

for (const kind of usualKinds) throttleContract(kind);
