; The crew's code: what crew.py says of boards, tickets and chunks, for threads that hold no interpreter lock.
; crew.py puts numbers for $$NAMES (positions are in words of 8 bytes), and what depends on the number of arrays for $$names.
; Words that change while a job is open are atomics. The job's own and the board's JOB are written before the ticket and read
; after it.

declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @usleep(i32)

define internal void @chunk(ptr %job, i64 %number, i64 %chunks) {  ; run the tasks of one chunk
  %result = alloca ptr  ; where Numba's code puts its result, which is none, and its exception
  %error = alloca ptr
  %kernel = load ptr, ptr %job
  %tasks_at = getelementptr i64, ptr %job, i64 $TASKS
  %tasks = load i64, ptr %tasks_at
  %before = mul i64 %number, %tasks
  %first = udiv i64 %before, %chunks
  %next = add i64 %number, 1
  %until = mul i64 %next, %tasks
  %last = udiv i64 %until, %chunks$arrays
  %status = call i32 %kernel(ptr %result, ptr %error, i64 %first, i64 %last$passed)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %done, label %failed
failed:
  %status_at = getelementptr i64, ptr %job, i64 $STATUS
  store atomic i64 $FAILED, ptr %status_at release, align 8
  br label %done
done:
  ret void
}

define internal i1 @open(ptr %board, i64 %ticket, i64 %thread) {  ; has its job a chunk that nobody has taken, for this thread?
  %next = and i64 %ticket, $CLOSED
  %chunks_at = getelementptr i64, ptr %board, i64 $CHUNKS
  %chunks = load atomic i64, ptr %chunks_at acquire, align 8
  %left = icmp ult i64 %next, %chunks
  %helpers_at = getelementptr i64, ptr %board, i64 $HELPERS
  %helpers = load atomic i64, ptr %helpers_at acquire, align 8
  %wanted = icmp slt i64 %thread, %helpers
  %open = and i1 %left, %wanted
  ret i1 %open
}

define internal i64 @work(ptr %board, i64 %thread) {  ; take chunks and run them until none is left: so many it took
start:
  %chunks_at = getelementptr i64, ptr %board, i64 $CHUNKS
  %job_at = getelementptr i64, ptr %board, i64 $JOB
  %finished_at = getelementptr i64, ptr %board, i64 $FINISHED
  br label %look
look:
  %ran = phi i64 [ 0, %start ], [ %ran, %take ], [ %more, %run ]
  %ticket = load atomic i64, ptr %board seq_cst, align 8
  %open = call i1 @open(ptr %board, i64 %ticket, i64 %thread)
  br i1 %open, label %take, label %leave
take:
  %raised = add i64 %ticket, 1
  %pair = cmpxchg ptr %board, i64 %ticket, i64 %raised seq_cst seq_cst
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %look
run:  ; the ticket was still the same, so all that was read belongs to its job
  %next = and i64 %ticket, $CLOSED
  %chunks = load atomic i64, ptr %chunks_at acquire, align 8
  %job = load ptr, ptr %job_at
  %chunk_at = getelementptr i64, ptr %job, i64 $CHUNK
  %chunk = load ptr, ptr %chunk_at
  call void %chunk(ptr %job, i64 %next, i64 %chunks)
  %count = atomicrmw add ptr %finished_at, i64 1 seq_cst
  %more = add i64 %ran, 1
  br label %look
leave:
  ret i64 %ran
}

define internal i64 @now() {  ; nanoseconds
  %time = alloca [2 x i64]
  %asked = call i32 @clock_gettime(i32 $CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest_at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

define void @serve_${arity}(ptr %board, i64 %thread) {  ; a thread's life
start:
  %asleep_at = getelementptr i64, ptr %board, i64 $ASLEEP
  %mutex = getelementptr i64, ptr %board, i64 $MUTEX
  %condition = getelementptr i64, ptr %board, i64 $CONDITION
  br label %begin
begin:
  %since = call i64 @now()
  br label %look
look:
  %before = phi i64 [ %since, %begin ], [ %now, %pause ]
  %ticket = load atomic i64, ptr %board seq_cst, align 8
  %open = call i1 @open(ptr %board, i64 %ticket, i64 %thread)
  br i1 %open, label %help, label %pause
help:
  %ran = call i64 @work(ptr %board, i64 %thread)
  br label %begin
pause:
  %yielded = call i32 @sched_yield()
  %now = call i64 @now()
  %away = sub i64 %now, %before
  %crowded = icmp ugt i64 %away, $CROWDED
  %spent = sub i64 %now, %since
  %tired = icmp ugt i64 %spent, $LOOKING
  %enough = or i1 %crowded, %tired
  br i1 %enough, label %rest, label %look
rest:
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %one_more = atomicrmw add ptr %asleep_at, i64 1 seq_cst
  %now_ticket = load atomic i64, ptr %board seq_cst, align 8
  %now_open = call i1 @open(ptr %board, i64 %now_ticket, i64 %thread)
  br i1 %now_open, label %awake, label %wait
wait:
  %woken = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %awake  ; though the job may be over: another one like it is likely near
awake:
  %one_less = atomicrmw sub ptr %asleep_at, i64 1 seq_cst
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %begin
}

define i64 @run_${arity}(ptr %board, ptr %job, i64 %threads, i64 %helpers, i64 %chunks, i1 zeroext %wake$parameters) {
  %busy_at = getelementptr i64, ptr %board, i64 $BUSY
  %taken = cmpxchg ptr %busy_at, i64 0, i64 1 seq_cst seq_cst
  %mine = extractvalue { i64, i1 } %taken, 1
  br i1 %mine, label %post, label %refuse
refuse:
  ret i64 $REFUSED
post:  ; nobody reads the job before its ticket is there$fetched
  %chunk_at = getelementptr i64, ptr %job, i64 $CHUNK
  store ptr @chunk, ptr %chunk_at
  %status_at = getelementptr i64, ptr %job, i64 $STATUS
  store atomic i64 $DONE, ptr %status_at monotonic, align 8
  %job_at = getelementptr i64, ptr %board, i64 $JOB
  store ptr %job, ptr %job_at
  %finished_at = getelementptr i64, ptr %board, i64 $FINISHED
  store atomic i64 0, ptr %finished_at monotonic, align 8
  %helpers_at = getelementptr i64, ptr %board, i64 $HELPERS
  store atomic i64 %helpers, ptr %helpers_at release, align 8
  %chunks_at = getelementptr i64, ptr %board, i64 $CHUNKS
  store atomic i64 %chunks, ptr %chunks_at release, align 8
  %old = load atomic i64, ptr %board monotonic, align 8
  %ticket = add i64 %old, 1  ; closed, so this is the next number's first chunk
  store atomic i64 %ticket, ptr %board seq_cst, align 8
  %asleep_at = getelementptr i64, ptr %board, i64 $ASLEEP
  %asleep = load atomic i64, ptr %asleep_at seq_cst, align 8
  %awake = sub i64 %threads, %asleep  ; of so many, some may be those that this job does not want: then it has fewer
  %few = icmp slt i64 %awake, %helpers
  %worth = and i1 %few, %wake
  br i1 %worth, label %rouse, label %work
rouse:
  %mutex = getelementptr i64, ptr %board, i64 $MUTEX
  %condition = getelementptr i64, ptr %board, i64 $CONDITION
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  %told = call i32 @pthread_cond_broadcast(ptr %condition)
  br label %work
work:
  %ran = call i64 @work(ptr %board, i64 -1)
  %since = call i64 @now()
  br label %check
check:
  %finished = load atomic i64, ptr %finished_at seq_cst, align 8
  %all = icmp eq i64 %finished, %chunks
  br i1 %all, label %close, label %wait
wait:
  %now = call i64 @now()
  %waited = sub i64 %now, %since
  %weary = icmp ugt i64 %waited, $WEARY
  br i1 %weary, label %sleep, label %yield
sleep:  ; another process may have our core, for which nobody yields
  %slept = call i32 @usleep(i32 $NAP)
  br label %check
yield:
  %yielded = call i32 @sched_yield()
  br label %check
close:
  %closed = or i64 %ticket, $CLOSED
  store atomic i64 %closed, ptr %board seq_cst, align 8
  %status = load atomic i64, ptr %status_at acquire, align 8
  store atomic i64 0, ptr %busy_at release, align 8
  ret i64 %status
}
