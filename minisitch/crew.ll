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
declare i32 @getpid()
declare i32 @usleep(i32)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

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
  br i1 %open, label %weigh, label %leave
weigh:
  %calls = icmp slt i64 %thread, 0
  br i1 %calls, label %apart, label %take
apart:
  call void @part(ptr %board)
  br label %take
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

define internal i64 @but(ptr %cores, i64 %core) {  ; take one core out of a set: 0 if none is left
  %word = lshr i64 %core, 6
  %bits_at = getelementptr i64, ptr %cores, i64 %word
  %bits = load i64, ptr %bits_at
  %place = and i64 %core, 63
  %bit = shl i64 1, %place
  %others = xor i64 %bit, -1
  %rest = and i64 %bits, %others
  store i64 %rest, ptr %bits_at
  %words = load <$CORES x i64>, ptr %cores, align 8
  %any = call i64 @llvm.vector.reduce.or.v${CORES}i64(<$CORES x i64> %words)
  ret i64 %any
}

define internal i64 @here() {  ; the core of this thread; -1 if the system does not say, or has more than we count
  %here = call i32 @sched_getcpu()
  %core = sext i32 %here to i64
  %all = mul i64 $CORES, 64
  %counted = icmp ult i64 %core, %all
  %known = select i1 %counted, i64 %core, i64 -1
  ret i64 %known
}

; The crew's threads to any core but the caller's, unless they are there already. To those that the caller may use; if that is
; this one alone, to those of the process's first thread; to all of these, this one too, if there is no other. PARTED: whether there was.
define internal void @part(ptr %board) {
  %cores = alloca [$CORES x i64], align 8  ; a bit each
  %core = call i64 @here()
  %core_at = getelementptr i64, ptr %board, i64 $CORE
  %parted_at = getelementptr i64, ptr %board, i64 $PARTED
  %before = load atomic i64, ptr %core_at monotonic, align 8
  %moved = icmp ne i64 %core, %before
  %parted = load atomic i64, ptr %parted_at monotonic, align 8
  %together = icmp eq i64 %parted, 0
  %come = or i1 %moved, %together
  %counted = icmp sge i64 %core, 0
  %ask = and i1 %come, %counted
  br i1 %ask, label %own, label %done
own:
  store atomic i64 %core, ptr %core_at monotonic, align 8
  store atomic i64 0, ptr %parted_at monotonic, align 8
  %bytes = mul i64 $CORES, 8
  %got = call i32 @sched_getaffinity(i32 0, i64 %bytes, ptr %cores)
  %known = icmp eq i32 %got, 0
  br i1 %known, label %mine, label %done
mine:
  %mine_left = call i64 @but(ptr %cores, i64 %core)
  %enough = icmp ne i64 %mine_left, 0
  br i1 %enough, label %send, label %process
process:
  %id = call i32 @getpid()
  %asked = call i32 @sched_getaffinity(i32 %id, i64 %bytes, ptr %cores)
  %answered = icmp eq i32 %asked, 0
  br i1 %answered, label %first, label %done
first:
  %first_left = call i64 @but(ptr %cores, i64 %core)
  %others = icmp ne i64 %first_left, 0
  br i1 %others, label %send, label %nowhere
nowhere:
  %again = call i32 @sched_getaffinity(i32 %id, i64 %bytes, ptr %cores)
  call void @send(ptr %board, ptr %cores)
  br label %done
send:
  call void @send(ptr %board, ptr %cores)
  store atomic i64 1, ptr %parted_at monotonic, align 8
  br label %done
done:
  ret void
}

define internal void @fetch(ptr %board) {  ; the crew's threads to the caller's core, where one can go on that waits for another
  %cores = alloca [$CORES x i64], align 8
  %bytes = mul i64 $CORES, 8
  call void @llvm.memset.p0.i64(ptr %cores, i8 0, i64 %bytes, i1 false)
  %parted_at = getelementptr i64, ptr %board, i64 $PARTED
  %parted = load atomic i64, ptr %parted_at monotonic, align 8
  %away = icmp ne i64 %parted, 0  ; else they could not be sent back
  %core = call i64 @here()
  %counted = icmp sge i64 %core, 0
  %both = and i1 %away, %counted
  br i1 %both, label %lend, label %done
lend:
  %word = lshr i64 %core, 6
  %bits_at = getelementptr i64, ptr %cores, i64 %word
  %place = and i64 %core, 63
  %bit = shl i64 1, %place
  store i64 %bit, ptr %bits_at
  call void @send(ptr %board, ptr %cores)
  %core_at = getelementptr i64, ptr %board, i64 $CORE
  store atomic i64 -1, ptr %core_at monotonic, align 8  ; the next job sends them away again
  br label %done
done:
  ret void
}

define internal void @send(ptr %board, ptr %cores) {  ; the crew's threads to some cores
start:
  %bytes = mul i64 $CORES, 8
  br label %look
look:
  %at = phi i64 [ $NATIVE_IDS, %start ], [ %next, %one ]
  %id_at = getelementptr i64, ptr %board, i64 %at
  %id = load atomic i64, ptr %id_at acquire, align 8
  %nobody = icmp eq i64 %id, 0
  br i1 %nobody, label %done, label %one
one:
  %thread = trunc i64 %id to i32
  %sent = call i32 @sched_setaffinity(i32 %thread, i64 %bytes, ptr %cores)  ; refused where there is no other core
  %next = add i64 %at, 1
  br label %look
done:
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.vector.reduce.or.v${CORES}i64(<$CORES x i64>)

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
post:  ; nobody reads the job before its ticket is there
  call void @part(ptr %board)$fetched
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
  %started = call i64 @now()
  %ran = call i64 @work(ptr %board, i64 -1)
  %since = call i64 @now()
  %own = call i64 @llvm.umax.i64(i64 %ran, i64 1)
  %spent = sub i64 %since, %started
  %each = udiv i64 %spent, %own
  %patience = add i64 %each, $STALLED
  %most = add i64 %patience, $WEARY
  %but_one = sub i64 %chunks, 1
  br label %check
check:
  %fetched = phi i1 [ false, %work ], [ %fetched, %looked ], [ true, %stalled ]
  %finished = load atomic i64, ptr %finished_at seq_cst, align 8
  %all = icmp eq i64 %finished, %chunks
  br i1 %all, label %close, label %wait
wait:
  %now = call i64 @now()
  %waited = sub i64 %now, %since
  %weary = icmp ugt i64 %waited, %most
  br i1 %weary, label %sleep, label %yield
sleep:  ; whoever has our core now may be of a weaker class, for which nobody yields
  %slept = call i32 @usleep(i32 $NAP)
  br label %looked
yield:
  %yielded = call i32 @sched_yield()
  br label %looked
looked:
  %long = icmp ugt i64 %waited, %patience
  %last = icmp eq i64 %finished, %but_one
  %late = and i1 %long, %last
  %first = xor i1 %fetched, true
  %stuck = and i1 %late, %first
  br i1 %stuck, label %stalled, label %check
stalled:
  call void @fetch(ptr %board)
  br label %check
close:
  %closed = or i64 %ticket, $CLOSED
  store atomic i64 %closed, ptr %board seq_cst, align 8
  %status = load atomic i64, ptr %status_at acquire, align 8
  store atomic i64 0, ptr %busy_at release, align 8
  ret i64 %status
}

declare i64 @llvm.umax.i64(i64, i64)
