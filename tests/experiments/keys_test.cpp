// Each key of training, models, data sets, budget, evaluation and recording has an effect, and so has each top-level
// key.
#include <fmt/format.h>

#include "tests/experiments/compression_key_cases.hpp"
#include "tests/experiments/gossip_key_cases.hpp"
#include "tests/experiments/key_walk.hpp"
#include "tests/experiments/local_key_cases.hpp"
#include "tests/experiments/server_key_cases.hpp"
#include "tests/workers/script_files.hpp"

namespace syncopate {
namespace {

using Hash = IdleKey::Hash;

// The 240 samples make 15 steps per epoch: 2 workers take 8 each.
constexpr const char* trained = R"(
seeds = [3]
[cluster]
workers = 2
micro_batch_s = 0.01
micro_batches = 2
[network]
kind = "fixed"
latency_s = 0.001
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 4
[training.learning_rate]
schedule = "constant"
peak = 0.1
[training.optimizer]
name = "sgd"
[datasets.gaussian-mixture]
classes = 3
dimension = 4
train = 240
test = 40
[budget]
steps = 8
[evaluation]
every_steps = 2
[[methods]]
algorithm = "sync-sgd"
)";

const std::vector<KeyCase> of_the_root = {
    {{}, {"seeds=[4]", "name='another'", "description='what it shows'"}},
};

const std::vector<KeyCase> training = {
    {{},
     {"training.micro_batch_size=5", "training.clip_norm=0.3", "training.label_smoothing=0.2", "training.model='mlp'",
      "training.model='quadratic'", "training.optimizer.name='adamw'"}},
    {{"training={model='none',parameters=1000}"}, {"training.parameters=2000"}},
    {{"training.optimizer={name='sgd',momentum=0.5,weight_decay=0.1}"},
     {"training.optimizer.momentum=0.9", "training.optimizer.nesterov=true", "training.optimizer.weight_decay=0.2",
      "training.optimizer.decay='all'", "training.optimizer.decoupled=true"}},
    {{"training.optimizer={name='adamw',weight_decay=0.1}"},
     {"training.optimizer.beta1=0.8", "training.optimizer.beta2=0.9", "training.optimizer.epsilon=0.01",
      "training.optimizer.weight_decay=0.2", "training.optimizer.decay='weights'",
      "training.optimizer.bias_correction=false"}},
    {{"training.optimizer={name='sgd',momentum=0.5,weight_decay=0.1}",
      "training.learning_rate={schedule='cosine',peak=0.1}"},
     {"training.optimizer.momentum_of='updates'", "training.optimizer.exclude=['weight']"}},
    {{"training.optimizer={name='adam',weight_decay=0.1}"},
     {"training.optimizer.beta1=0.8", "training.optimizer.beta2=0.9", "training.optimizer.epsilon=0.01",
      "training.optimizer.name='adamw'", "training.optimizer.weight_decay=0.2", "training.optimizer.decay='weights'",
      "training.optimizer.bias_correction=false", "training.optimizer.exclude=['weight']"}},
    {{"training.optimizer={name='adamw',weight_decay=0.1}"}, {"training.optimizer.exclude=['weight']"}},
    {{"training.optimizer={name='rmsprop',weight_decay=0.1}"},
     {"training.optimizer.form='pytorch'", "training.optimizer.rho=0.5", "training.optimizer.momentum=0",
      "training.optimizer.epsilon=0.1", "training.optimizer.mean_square_start=0", "training.optimizer.weight_decay=0.2",
      "training.optimizer.decay='all'", "training.optimizer.exclude=['weight']"}},
    {{"training.optimizer={name='rmsprop',form='pytorch',weight_decay=0.1}"},
     {"training.optimizer.rho=0.5", "training.optimizer.momentum=0", "training.optimizer.epsilon=0.1",
      "training.optimizer.mean_square_start=1", "training.optimizer.weight_decay=0.2", "training.optimizer.decay='all'",
      "training.optimizer.exclude=['weight']"}},
    {{"training.optimizer={name='lars',weight_decay=0.1}", "training.learning_rate={schedule='cosine',peak=0.1}"},
     {"training.optimizer.momentum_of='gradients'", "training.optimizer.trust_coefficient=0.01",
      "training.optimizer.epsilon=1", "training.optimizer.trust_ratio='all'", "training.optimizer.momentum=0.5",
      "training.optimizer.weight_decay=0.2", "training.optimizer.decay='all'",
      "training.optimizer.exclude=['weight']"}},
    {{"training.optimizer={name='lamb',weight_decay=0.1}"},
     {"training.optimizer.beta1=0.8", "training.optimizer.beta2=0.9", "training.optimizer.epsilon=0.01",
      "training.optimizer.grad_averaging=false", "training.optimizer.max_norm=0.01",
      "training.optimizer.trust_ratio='all'", "training.optimizer.decoupled=false", "training.optimizer.ratio_min=5",
      "training.optimizer.ratio_max=0.01", "training.optimizer.weight_decay=0.2", "training.optimizer.decay='all'",
      "training.optimizer.exclude=['weight']"}},
    {{"training.model='text-transformer'", "models.text-transformer={width=4,depth=1,heads=2,mlp_width=3,positions=8}",
      "training.dataset='npy'", "datasets.npy={directory='$/texts',padding=0}",
      "training.optimizer={name='muon',weight_decay=0.1}"},
     {"training.optimizer.momentum=0.5", "training.optimizer.nesterov=false", "training.optimizer.scale='spectral'",
      "training.optimizer.scale='rms-match'", "training.optimizer.iterations='dion'",
      "training.optimizer.matrices='all'", "training.optimizer.adamw=['linear3']", "training.optimizer.adamw_rate=0.5",
      "training.optimizer.beta1=0.8", "training.optimizer.beta2=0.9", "training.optimizer.epsilon=0.01",
      "training.optimizer.weight_decay=0.2", "training.optimizer.decay='all'",
      "training.optimizer.exclude=['weight']"}},
    {{"training.model='text-transformer'", "models.text-transformer={width=4,depth=1,heads=2,mlp_width=3,positions=8}",
      "training.dataset='npy'", "datasets.npy={directory='$/texts',padding=0}",
      // At full rank Dion steps along rounding errors, which differ from processor to processor.
      "training.optimizer={name='dion',weight_decay=0.1,rank_share=0.5}"},
     {"training.optimizer.momentum=0.5", "training.optimizer.rank_share=0.3", "training.optimizer.matrices='all'",
      "training.optimizer.adamw=['linear3']", "training.optimizer.adamw_rate=0.5", "training.optimizer.beta1=0.8",
      "training.optimizer.beta2=0.9", "training.optimizer.epsilon=0.01", "training.optimizer.weight_decay=0.2",
      "training.optimizer.decay='all'", "training.optimizer.exclude=['weight']"}},
    {{"training.optimizer={name='schedule-free-sgd',weight_decay=0.1}",
      "training.learning_rate={schedule='constant',peak=0.1,warmup_steps=3}"},
     {"training.optimizer.momentum=0.5", "training.optimizer.weight_power=1", "training.optimizer.step_power=1",
      "training.optimizer.weight_decay=0.2", "training.optimizer.decay='weights'",
      "training.optimizer.exclude=['weight']"}},
    {{"training.optimizer={name='schedule-free-adamw',weight_decay=0.1}",
      "training.learning_rate={schedule='constant',peak=0.1,warmup_steps=3}"},
     {"training.optimizer.momentum=0.5", "training.optimizer.weight_power=1", "training.optimizer.step_power=1",
      "training.optimizer.beta2=0.9", "training.optimizer.epsilon=0.01", "training.optimizer.bias_correction='rate'",
      "training.optimizer.decay_at='z'", "training.optimizer.weight_decay=0.2", "training.optimizer.decay='weights'",
      "training.optimizer.exclude=['weight']"}},
    {{"training.optimizer={name='gpa',weight_decay=0.1}"},
     {"training.optimizer.base='sgd'", "training.optimizer.mu_y=0.5", "training.optimizer.mu_x=0.5",
      "training.optimizer.beta1=0.8", "training.optimizer.beta2=0.9", "training.optimizer.epsilon=0.01",
      "training.optimizer.weight_decay=0.2", "training.optimizer.decay='weights'",
      "training.optimizer.exclude=['weight']"}},
    {{"training.optimizer={name='lans',weight_decay=0.1,epsilon=0.1}"},
     {"training.optimizer.beta1=0.8", "training.optimizer.beta2=0.9", "training.optimizer.epsilon=0.01",
      "training.optimizer.max_norm=0.01", "training.optimizer.trust_ratio='decayed'",
      "training.optimizer.weight_decay=0.2", "training.optimizer.decay='all'",
      "training.optimizer.exclude=['weight']"}},
    {{"training.learning_rate={schedule='cosine',peak=0.1}"},
     {"training.learning_rate.peak=0.2", "training.learning_rate.final=0.01", "training.learning_rate.warmup_steps=2",
      "training.learning_rate.warmup_epochs=0.25", "training.learning_rate.total_steps=20",
      "training.learning_rate.schedule='linear'", "training.learning_rate.schedule='constant'"}},
    {{"training.learning_rate={schedule='step',peak=0.1,decay_steps=[2,4]}"},
     {"training.learning_rate.decay_steps=[2,5]", "training.learning_rate.factor=0.5"}},
    {{"training.learning_rate={schedule='step',peak=0.1,decay_epochs=[0.2,0.4]}"},
     {"training.learning_rate.decay_epochs=[0.2,0.3]"}},
    {{"training.learning_rate={schedule='constant',peak=0.1,warmup_steps=3}"},
     {"training.learning_rate.warmup_start=0.05", "training.learning_rate.counter='next'",
      "training.learning_rate.counter='optimizer'"}},
    {{"training.learning_rate={schedule='constant',peak=0.1,warmup_share=0.3}"},
     {"training.learning_rate.warmup_share=0.6", "training.learning_rate.total_steps=20"}},
    {{"training.learning_rate={schedule='exponential',peak=0.1,decay_every_steps=3,factor=0.5}"},
     {"training.learning_rate.decay_every_steps=2", "training.learning_rate.factor=0.6",
      "training.learning_rate.staircase=true", "training.learning_rate.hold_steps=2"}},
    {{"training.learning_rate={schedule='exponential',peak=0.1,decay_every_epochs=0.2}"},
     {"training.learning_rate.decay_every_epochs=0.4", "training.learning_rate.warmup_share=0.3",
      "training.learning_rate.hold_share=0.3"}},
    {{"training.learning_rate={schedule='exponential',peak=0.1,decay_every_epochs=0.2,warmup_share=0.3}"},
     {"training.learning_rate.total_steps=20"}},
    {{"training.learning_rate={schedule='polynomial',peak=0.1,power=2}"},
     {"training.learning_rate.power=0.5", "training.learning_rate.final=0.01", "training.learning_rate.hold_steps=2",
      "training.learning_rate.hold_epochs=0.2", "training.learning_rate.hold_share=0.4",
      "training.learning_rate.warmup_share=0.3", "training.learning_rate.total_steps=20"}},
    {{"training.learning_rate={schedule='linear',peak=0.1}"},
     {"training.learning_rate.hold_steps=2", "training.learning_rate.total_steps=20"}},
    {{"training.learning_rate={schedule='modified-cosine',peak=0.1,constant_from_step=5}"},
     {"training.learning_rate.constant_from_step=3", "training.learning_rate.total_steps=20"}},
    {{"training.learning_rate={schedule='modified-cosine',peak=0.1,constant_from_epoch=0.4}"},
     {"training.learning_rate.constant_from_epoch=0.2"}},
    {{"training.learning_rate={schedule='cosine-step',peak=0.1}"},
     {"training.learning_rate.base=3", "training.learning_rate.total_steps=20"}},
};

const std::vector<KeyCase> starts = {
    {{}, {"training.start='$/start.npy'", "training.start_steps=3", "training.common={steps=2}"}},
    {{"training.common={steps=2}"}, {"training.common.steps=3"}},
};

const std::vector<KeyCase> models_and_datasets = {
    {{},
     {"datasets.gaussian-mixture.classes=4", "datasets.gaussian-mixture.dimension=5",
      "datasets.gaussian-mixture.train=200", "datasets.gaussian-mixture.test=30",
      "datasets.gaussian-mixture.separation=2"}},
    {{"training.dataset='fashion-mnist'", "datasets.fashion-mnist.directory='$/images'"},
     {"datasets.fashion-mnist.directory='$/others'", "training.dataset='gaussian-mixture'"}},
    {{"training.partition={kind='dirichlet'}"},
     {"training.partition.alpha=2", "training.partition.kind='size'", "training.partition.kind='label'",
      "training.partition.kind='shuffled'"}},
    {{"training.partition={kind='size'}"}, {"training.partition.alpha=2"}},
    {{"training.partition={kind='label',shards=2}"}, {"training.partition.shards=3"}},
    {{"training.dataset='cifar-10'", "datasets.cifar-10={directory='$/own',complete=false}"},
     {"datasets.cifar-10.directory='$/own2'", "datasets.cifar-10.scale='measured'"}},
    {{"training.dataset='cifar-100'", "datasets.cifar-100={directory='$/own',complete=false}"},
     {"datasets.cifar-100.directory='$/own2'", "datasets.cifar-100.scale='published'",
      "datasets.cifar-100.labels='coarse'"}},
    {{"training.dataset='npy'", "datasets.npy.directory='$/own'"}, {"datasets.npy.directory='$/own2'"}},
    {{"training.dataset='npy'", "datasets.npy={directory='$/texts',padding=0}"},
     {"datasets.npy.directory='$/texts2'", "datasets.npy.padding=3", "datasets.npy.mask=30"}},
    {{"training.dataset='text-lines'", "datasets.text-lines={file='$/texts.txt',labelled=true}"},
     {"datasets.text-lines.file='$/texts2.txt'", "datasets.text-lines.test_share=0.3", "datasets.text-lines.words=5",
      "datasets.text-lines.least=30"}},
    {{"training.dataset='text-lines'", "datasets.text-lines={file='$/texts.txt',labelled=true}",
      "cluster.micro_batch_s={per_padded_token_s=0.001,per_squared_length_s=1e-4}"},
     {"training.batching='padded'", "training.batching='bucketed'"}},
    {{"training.dataset='text-lines'", "datasets.text-lines={file='$/texts.txt',labelled=true}",
      "training.batching='packed'", "training.token_budget=20"},
     {"training.token_budget=30"}},
    {{"training.dataset='tokens'", "training.model='text-transformer'",
      "models.text-transformer={task='causal-lm',width=4,depth=1,heads=2,mlp_width=3,positions=12}",
      "datasets.tokens={directory='$/streams',test='test*.bin',context=6}"},
     {"datasets.tokens.directory='$/streams2'", "datasets.tokens.train='val*.bin'", "datasets.tokens.test='val*.bin'",
      "datasets.tokens.format='uint8'", "datasets.tokens.context=5", "datasets.tokens.vocabulary=40",
      "datasets.tokens.windows='random'", "datasets.tokens.test_windows=7"}},
    {{"training.dataset='tokens'", "training.model='text-transformer'",
      "models.text-transformer={task='causal-lm',width=4,depth=1,heads=2,mlp_width=3,positions=12}",
      "datasets.tokens={directory='$/streams4',test='test*.bin',format='uint32',context=6}"},
     {"datasets.tokens.format='uint16'"}},
    {{"training.dataset='wordnet-glosses'", "datasets.wordnet-glosses.directory='$/glosses'"},
     {"datasets.wordnet-glosses.directory='$/glosses2'", "datasets.wordnet-glosses.test_share=0.3",
      "datasets.wordnet-glosses.words=5", "datasets.wordnet-glosses.least=9"}},
    {{"training.validation_samples=40"},
     {"training.validation_samples=30", "training.validation_seed=2", "training.subset_by_seed=true"}},
    {{"training.subset_samples=60"}, {"training.subset_samples=30"}},
    {{"training.augmentation={mixup=0.2}"}, {"training.augmentation.mixup=1", "training.augmentation.label_noise=0.2"}},
    {{"training.dataset='fashion-mnist'", "datasets.fashion-mnist.directory='$/images'",
      "training.augmentation={rotate_degrees=5}"},
     {"training.augmentation.rotate_degrees=30", "training.augmentation.zoom=0.3", "training.augmentation.crop=2",
      "training.augmentation.flip=true"}},
    {{"training.dataset='fashion-mnist'", "datasets.fashion-mnist.directory='$/images'",
      "training.augmentation.randaugment={form='torchvision'}"},
     {"training.augmentation.randaugment.strength=20", "training.augmentation.randaugment.operations=4",
      "training.augmentation.randaugment.form='none'"}},
    {{"training.dataset='fashion-mnist'", "datasets.fashion-mnist.directory='$/images'",
      "training.augmentation.randaugment={form='composer'}"},
     {"training.augmentation.randaugment.strength=2.5", "training.augmentation.randaugment.operations=1"}},
    {{"training.model='mlp'", "models.mlp.hidden=[3]"}, {"models.mlp.hidden=[3,2]", "models.mlp.dropout=0.4"}},
    {{"training.model='cnn'", "models.cnn={channels=[2],kernel=3,dense=4}", "training.dataset='fashion-mnist'",
      "datasets.fashion-mnist.directory='$/images'"},
     {"models.cnn.channels=[3]", "models.cnn.kernel=2", "models.cnn.dense=5", "models.cnn.batch_norm=true",
      "models.cnn.dropout=0.4"}},
    {{"training.model='resnet'", "models.resnet={depth=8,width=2,norm='group',groups=2}",
      "training.dataset='fashion-mnist'", "datasets.fashion-mnist.directory='$/images'"},
     {"models.resnet.depth=14", "models.resnet.width=4", "models.resnet.groups=1", "models.resnet.activation='silu'",
      "models.resnet.zero_init_residual=true", "models.resnet.dropout=0.4"}},
    {{"training.model='resnet'", "models.resnet={depth=8,width=8}", "training.dataset='fashion-mnist'",
      "datasets.fashion-mnist.directory='$/images'"},
     {"models.resnet.norm='group'"}},
    {{"training.model='imagenet-resnet'", "models.imagenet-resnet={depth=18,width=2,norm='group',groups=2}",
      "training.dataset='cifar-10'", "datasets.cifar-10={directory='$/own',complete=false}"},
     {"models.imagenet-resnet.depth=34", "models.imagenet-resnet.width=4", "models.imagenet-resnet.stem='cifar'",
      "models.imagenet-resnet.groups=1", "models.imagenet-resnet.zero_init_residual=true"}},
    // With the other stem, batch normalisation of single pixels amplifies rounding errors.
    {{"training.model='imagenet-resnet'", "models.imagenet-resnet={depth=18,width=32,stem='cifar'}",
      "training.dataset='cifar-10'", "datasets.cifar-10={directory='$/own',complete=false}",
      "training.learning_rate.peak=0.001"},
     {"models.imagenet-resnet.norm='group'"}},
    {{"training.model='vit'", "models.vit={patch=3,width=8,depth=1,heads=2,head_width=2,mlp_width=4}",
      "training.dataset='fashion-mnist'", "datasets.fashion-mnist.directory='$/images'"},
     {"models.vit.patch=2", "models.vit.width=12", "models.vit.depth=2", "models.vit.heads=1",
      "models.vit.head_width=3", "models.vit.mlp_width=5", "models.vit.dropout=0.4"}},
    {{"training.model='text-transformer'", "models.text-transformer={width=4,depth=1,heads=2,mlp_width=3,positions=8}",
      "training.dataset='text-lines'", "datasets.text-lines={file='$/texts.txt',labelled=true}"},
     {"models.text-transformer.width=6", "models.text-transformer.depth=2", "models.text-transformer.heads=1",
      "models.text-transformer.mlp_width=5", "models.text-transformer.positions=9",
      "models.text-transformer.norm='pre'", "models.text-transformer.pooling='mean'",
      "models.text-transformer.dropout=0.4", "models.text-transformer.task='causal-lm'",
      "models.text-transformer.task='masked-lm'"}},
    {{"training.model='text-transformer'",
      "models.text-transformer={width=4,depth=1,heads=2,mlp_width=3,positions=4,cut=true,task='causal-lm',norm='pre'}",
      "training.dataset='text-lines'", "datasets.text-lines={file='$/texts.txt',labelled=true}"},
     {"models.text-transformer.positions=5", "models.text-transformer.norm='post'",
      "datasets.text-lines.labelled=false"}},
    {{"training.model='text-transformer'",
      "models.text-transformer={width=4,depth=1,heads=2,mlp_width=3,positions=4,cut=true}",
      "training.dataset='text-lines'", "datasets.text-lines={file='$/texts.txt',labelled=true}"},
     {"models.text-transformer.positions=3"}},
    {{"training.model='text-transformer'",
      "models.text-transformer={task='masked-lm',masked_share=0.5,width=4,depth=1,heads=2,mlp_width=3,positions=8}",
      "training.dataset='npy'", "datasets.npy={directory='$/texts',padding=0,mask=18}"},
     {"models.text-transformer.masked_share=0.9", "models.text-transformer.most_masked=1",
      "models.text-transformer.masking='static'", "datasets.npy.mask=17"}},
    {{"training.model='text-transformer'",
      "models.text-transformer={task='masked-lm',masked_share=0.5,width=4,depth=1,heads=2,mlp_width=3,positions=8}",
      "training.dataset='npy'", "datasets.npy={directory='$/pairs',padding=0,mask=18}"},
     {"datasets.npy.never_masked=[4]"}},
    {{"training.model='text-transformer'", "budget={steps=33}",
      "models.text-transformer={task='masked-lm',masking='static',width=4,depth=1,heads=2,mlp_width=3,positions=8}",
      "training.dataset='npy'", "datasets.npy={directory='$/texts',padding=0,mask=18}"},
     {"models.text-transformer.mask_copies=1"}},
    {{"training.model='gpt'", "models.gpt={width=8,depth=1,heads=2,mlp_width=3,context=8,deviation=0.5}",
      "training.dataset='text-lines'", "datasets.text-lines={file='$/texts.txt',labelled=true}"},
     {"models.gpt.width=12", "models.gpt.depth=2", "models.gpt.heads=1", "models.gpt.mlp_width=5",
      "models.gpt.context=9", "models.gpt.positions='rotary'", "models.gpt.tied=false", "models.gpt.bias=false",
      "models.gpt.norm='rms'", "models.gpt.dropout=0.4", "models.gpt.deviation=0.1"}},
    {{"training.model='gpt'", "models.gpt={width=8,depth=1,heads=2,positions='rotary',deviation=0.5}",
      "training.dataset='text-lines'", "datasets.text-lines={file='$/texts.txt',labelled=true}"},
     {"models.gpt.rotary_base=100", "models.gpt.mlp_width=5"}},
    {{"training.model='gpt'", "models.gpt={width=8,depth=1,heads=2,context=3,cut=true,positions='rotary'}",
      "training.dataset='text-lines'", "datasets.text-lines={file='$/texts.txt',labelled=true}"},
     {"models.gpt.context=4"}},
    {{"training.model='torchscript'", "models.torchscript.file='$/model.pt'"},
     {"models.torchscript.file='$/other.pt'", "models.torchscript.initial='drawn'", "models.torchscript.fused='never'",
      "models.torchscript.chunk_samples=4"}},
    {{"training.model='torchscript'", "models.torchscript={file='$/model.pt',loss='mse'}", "training.dataset='npy'",
      "datasets.npy={directory='$/numbers'}"},
     {"models.torchscript.initial='drawn'"}},
    {{"training.model='torchscript'", "models.torchscript={file='$/decoder.pt',loss='causal'}",
      "training.dataset='npy'", "datasets.npy={directory='$/pairs',padding=0,mask=18}"},
     {"models.torchscript.loss='masked'", "models.torchscript.longest=4"}},
    {{"training.model='torchscript'", "models.torchscript={file='$/decoder.pt',loss='masked',masked_share=0.5}",
      "training.dataset='npy'", "datasets.npy={directory='$/texts',padding=0,mask=18}"},
     {"models.torchscript.masked_share=0.9", "models.torchscript.most_masked=1",
      "models.torchscript.masking='static'"}},
    {{"training.model='torchscript'", "models.torchscript={file='$/decoder.pt',loss='masked'}",
      "training.dataset='npy'", "datasets.npy={directory='$/labels',padding=0}"},
     {"models.torchscript.initial='drawn'", "models.torchscript.longest=4"}},
    {{"training.model='torchscript'", "budget={steps=33}",
      "models.torchscript={file='$/decoder.pt',loss='masked',masking='static'}", "training.dataset='npy'",
      "datasets.npy={directory='$/texts',padding=0,mask=18}"},
     {"models.torchscript.mask_copies=1"}},
    {{"training.model='quadratic'", "models.quadratic={dimension=4,condition=10,noise=0.1}"},
     {"models.quadratic.dimension=5", "models.quadratic.condition=20", "models.quadratic.noise=0.2"}},
    {{"training.model='valley'", "models.valley={pairs=2,start=1,noise=0.1}"},
     {"models.valley.pairs=3", "models.valley.start=1.5", "models.valley.noise=0.2"}},
    {{"training.model='diagonal-linear'",
      "models.diagonal-linear={dimension=8,inputs=5,active=2,label_noise=0.1,start=0.5,problem_seed=1}"},
     {"models.diagonal-linear.dimension=9", "models.diagonal-linear.inputs=6", "models.diagonal-linear.active=3",
      "models.diagonal-linear.label_noise=0.2", "models.diagonal-linear.start=0.6",
      "models.diagonal-linear.problem_seed=2"}},
};

const std::vector<KeyCase> budget_and_evaluation = {
    {{"budget={samples=100}"},
     {"budget.samples=50", "budget.steps=3", "budget.epochs=0.3", "budget.seconds=0.05", "budget.bytes=200"}},
    {{"budget={epochs=1}"}, {"budget.epochs=0.5"}},
    {{}, {"evaluation.every_steps=3", "evaluation.train_samples=50"}},
    {{"evaluation={every_seconds=0.1}"}, {"evaluation.every_seconds=0.2"}},
    {{"evaluation={every_steps=1,target_loss=100}"}, {"evaluation.target_loss=0.001", "evaluation.target_accuracy=1"}},
    {{"evaluation={every_steps=1,target_loss=0.816}", "training.validation_samples=40"},
     {"evaluation.target_of='validation'"}},
    {{"evaluation={every_epochs=0.2,target_accuracy=0.5}"},
     {"evaluation.every_epochs=0.4", "evaluation.target_accuracy=0.9"}},
    {{"measurements={every_steps=2,gradient_norm=true,largest_eigenvalue=true,hessian_trace=true,samples=40,"
      "most_products=4,tolerance=0.001}"},
     {"measurements.every_steps=3", "measurements.gradient_norm=false", "measurements.largest_eigenvalue=false",
      "measurements.hessian_trace=false", "measurements.step_gradient_norm=true",
      "measurements.consensus_distance=true", "measurements.samples=20", "measurements.most_products=2",
      "measurements.tolerance=0.9"}},
    {{"measurements={every_steps=2,noise_scale=true}"}, {"measurements.noise_scale=false"}},
};

const std::vector<IdleKey> idle = {
    {"name", Hash::differs, "names the directory of results"},
    {"description", Hash::same, "is for the reader"},
    {"sweep", Hash::differs, "its values stand in the runs"},
    {"variants", Hash::differs, "what they change stands in the runs"},
    {"profiles", Hash::differs, "what they change stands in the runs"},
    {"claim", Hash::differs, "is judged by the runs"},
    {"tune", Hash::differs, "what it finds stands in the runs"},
    {"training.device", Hash::differs, "the processor gives the same bits through copies (device_test)"},
    {"training.device_batch", Hash::differs, "changes only how sums are rounded"},
    {"training.precision", Hash::differs, "is rounded differently by each processor; device_test compares it"},
    {"training.deterministic", Hash::differs, "is for GPUs alone"},
    {"recording.trace", Hash::same, "is beside the run"},
    {"recording.trace_seconds", Hash::same, "the same"},
    {"recording.trace_events", Hash::same, "the same"},
    {"recording.durations", Hash::same, "the same"},
    {"recording.arrivals", Hash::same, "the same"},
    {"recording.samples", Hash::same, "the same"},
    {"recording.parameters", Hash::same, "the same"},
    {"checkpoint.every_s", Hash::same, "the same"},
    {"checkpoint.write", Hash::same, "the same"},
    {"datasets.fashion-mnist.directory_hash", Hash::differs, "refuses a directory of other content"},
    {"datasets.cifar-10.directory_hash", Hash::differs, "the same"},
    {"datasets.cifar-100.directory_hash", Hash::differs, "the same"},
    {"datasets.npy.directory_hash", Hash::differs, "the same"},
    {"datasets.cifar-10.complete", Hash::differs, "without it files of other sizes are a fault"},
    {"datasets.cifar-100.complete", Hash::differs, "the same"},
    {"models.text-transformer.cut", Hash::differs, "without it longer texts are a fault"},
    {"models.gpt.cut", Hash::differs, "the same"},
    {"datasets.text-lines.file_hash", Hash::differs, "refuses a file of other content"},
    {"datasets.wordnet-glosses.directory_hash", Hash::differs, "refuses a directory of other content"},
    {"datasets.tokens.directory_hash", Hash::differs, "refuses a directory of other content"},
    {"training.start_hash", Hash::differs, "refuses a file of other content"},
    {"models.torchscript.file_hash", Hash::differs, "refuses a file of other content"},
};

TEST_F(KeyWalk, OfTrainingModelsDataBudgetAndEvaluation) {
  write_images("images", 3);
  write_images("others", 7);
  write_own("own", 3);
  write_own("own2", 7);
  write_texts("texts", 3);
  write_texts("texts2", 7);
  write_texts("pairs", 3, 2);
  write_numbers("numbers");
  write_token_labels("labels");
  write_glosses("glosses", 7);
  write_glosses("glosses2", 11);
  write_streams("streams", 3);
  write_streams("streams2", 7);
  write_streams("streams4", 7, 4);
  setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  const FileBytes start = npy_file("<f4", "(15,)", bytes_of(std::vector<float>(15, 0.5f)));
  write("start.npy", {start.begin(), start.end()});
  for (const char* name : {"model.pt", "other.pt"})
    save_script(folder_ / name,
                {{.name = "weight", .shape = {3, 4}},
                 {.name = "offset", .shape = {3}, .values = {name == std::string("model.pt") ? 0.5f : 0.25f, 0, 0}}},
                "return torch.linear(x, self.weight, self.offset)");
  save_script(folder_ / "decoder.pt", {{.name = "words", .shape = {19, 3}}, {.name = "output", .shape = {19, 3}}},
              "return torch.linear(torch.embedding(self.words, x), self.output)");
  for (const auto& cases : {of_the_root, training, starts, models_and_datasets, budget_and_evaluation})
    walk(trained, cases, idle);
  walk(trained,
       {{{"recording={trace=false,durations=false,arrivals=false,parameters=false}"},
         {"recording.trace=true", "recording.durations=true", "recording.arrivals=true", "recording.samples=true",
          "recording.parameters=true", "recording.trace_events=5", "recording.trace_seconds=0.01"}},
        {{"checkpoint={every_s=60,write=true}"}, {"checkpoint.every_s=30", "checkpoint.write=false"}}},
       idle);
  expect_completeness({"cluster", "network", "delays", "outages", "methods"}, true);
  expect_results_by_version(SYNCOPATE_SOURCE_DIR, "tests/golden/results_by_version/training.json");
}

// Recording does not change a run. Each of its keys changes what is recorded.
TEST_F(KeyWalk, OfRecording) {
  write("experiment.toml", trained);
  const auto recorded = [&](const std::string& keys) {
    return recorded_text(load_experiment(folder_ / "experiment.toml", {"recording={" + keys + "}"}).runs.front());
  };
  EXPECT_NE(recorded("trace=true"), recorded("trace=false"));
  EXPECT_NE(recorded("durations=true"), recorded("durations=false"));
  EXPECT_NE(recorded("arrivals=true"), recorded("arrivals=false"));
  EXPECT_NE(recorded("samples=true"), recorded("samples=false"));
  EXPECT_NE(recorded("parameters=true"), recorded("parameters=false"));
  EXPECT_NE(recorded("trace=true,trace_events=5"), recorded("trace=true"));
  EXPECT_NE(recorded("trace=true,trace_seconds=0.01"), recorded("trace=true"));
}

// Workers' micro-batches take different, varying times. The 128 samples make 8 steps per epoch.
constexpr const char* compared = R"(
seeds = [3]
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 2
worker_factors = [1, 1.3, 1.1, 1.8]
[network]
kind = "fixed"
latency_s = 0.001
[[delays]]
kind = "exponential"
mean = 0.01
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 2
[training.learning_rate]
schedule = "cosine"
peak = 0.1
[training.optimizer]
name = "sgd"
[datasets.gaussian-mixture]
classes = 3
dimension = 4
train = 128
test = 20
[budget]
steps = 24
[evaluation]
every_steps = 8
)";

const std::vector<KeyCase> synchronous = {
    {{method("'sync-sgd'")},
     {"methods.0.algorithm='decentralized-sgd'", "methods.0.label='another'", "methods.0.training.clip_norm=0.1"}},
    {{"outages=[{workers=[1],at_s=0.035,duration_s=0.02}]",
      method("'sync-sgd',restart={takes_s=0.01,checkpoint_every_s=0.03,checkpoint_takes_s=0.002}")},
     {"methods.0.restart.takes_s=0.02", "methods.0.restart.checkpoint_every_s=0.02",
      "methods.0.restart.checkpoint_takes_s=0.004"}},
    {{method("'dropcompute',threshold_s=0.05")},
     {"methods.0.threshold_s=0.04", "methods.0.preempt='microbatch'", "methods.0.preempt='backward'",
      "methods.0.preempt='layer'", "methods.0.normalisation='computed'", "methods.0.compensation='recompute'",
      "methods.0.compensation='carry-over'"}},
    {{"training.learning_rate.final=0.01", method("'dropcompute',threshold_s=0.05")},
     {"methods.0.compensation='extra-steps'"}},
    {{method("'dropcompute',threshold_s=0.05,preempt='backward',forward_share=0.3")}, {"methods.0.forward_share=0.9"}},
    {{method("'dropcompute',threshold_s=0.05,normalisation='mean-rate',mean_drop_rate=0.2")},
     {"methods.0.mean_drop_rate=0.3"}},
    {{"training.learning_rate.final=0.01",
      method("'dropcompute',threshold_s=0.05,compensation='extra-steps',redundancy=0.2")},
     {"methods.0.redundancy=0.5", "methods.0.learning_rate_schedule='kept'"}},
    {{method("'dropcompute',threshold_s=0.08,compensation='larger-batch',redundancy=0.25")},
     {"methods.0.redundancy=1"}},
    {{method("'dropcompute',threshold_s=0.05,compensation='recompute'")}, {"methods.0.recompute_every_steps=5"}},
    {{method("'dropcompute',threshold_s=0.03,compensation='carry-over'")}, {"methods.0.carried_at_most=1"}},
    {{method("'random-drop',drop_rate=0.3")},
     {"methods.0.drop_rate=0.5", "methods.0.from_step=2", "methods.0.from_epoch=1"}},
};

// Returns the keys of the targets from which numbers are solved, for all rules that allow them.
const std::vector<std::string>& told() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char* method : {"local-sgd", "rounds", "outer-local-sgd", "diloco", "palsgd", "fedprox", "fednova",
                               "scaffold", "edit", "hierarchical-sgd", "dropcompute-local-sgd", "cocod-sgd",
                               "overlap-local-sgd", "co2", "overlapped-diloco", "streaming-diloco"})
      for (const char* rule : {"constant", "power", "post-local"})
        for (const char* key : {"share", "rounds", "found"})
          all.push_back(fmt::format("methods[{}].period[{}].solved_for.{}", method, rule, key));
    return all;
  }();
  return names;
}

std::vector<IdleKey> idle_keys() {
  std::vector<IdleKey> keys = {
      {"methods.label", IdleKey::Hash::differs, "names the method in tables"},
      {"methods[decentralized-sgd].graph[file].file_hash", IdleKey::Hash::differs, "refuses a file of other content"},
      {"methods[stochastic-gradient-push].graph[file].file_hash", IdleKey::Hash::differs, "the same"},
      {"methods[ad-psgd].graph[file].file_hash", IdleKey::Hash::differs, "the same"},
      {"methods[gradient-coding][cyclic].code_seed", IdleKey::Hash::differs,
       "another code of the same sum, which differs by what is rounded away"},
      {"methods[mindflayer][mindflayer].trials", IdleKey::Hash::differs, "is refused: a key of the other rule"},
      {"methods.compression[demo].feedback", IdleKey::Hash::differs, "is refused: DeMo's residual is its momentum"},
      {"methods[mindflayer][mindflayer].correction", IdleKey::Hash::differs, "the same"},
      {"methods[scaffold].second_moment", IdleKey::Hash::differs, "is refused: SGD has no second moment"},
  };
  for (const std::string& key : told())
    keys.push_back({key, IdleKey::Hash::same, "the number that was found decides, and it is in the hash"});
  return keys;
}

TEST_F(KeyWalk, OfMethods) {
  write_images("images", 3);
  write_texts("texts", 3);
  write("ring.csv", links_in_steps_of(1));
  write("shuffled.csv", links_in_steps_of(3));
  write("weighted_ring.csv", weighted_ring(false));
  write("wheel.csv", weighted_ring(true));
  for (const auto& cases :
       {synchronous, compressed, more_compressed(), messages, averages, moments, old_gradients, thresholds, quorums,
        asynchronous, periods(), policies(), model_weights(), outer_steps(), local, gossip_and_codes, graphs()})
    walk(compared, cases, idle_keys());
  expect_completeness({"methods"});
  expect_results_by_version(SYNCOPATE_SOURCE_DIR, "tests/golden/results_by_version/methods.json");
}

// Each key of [cluster], [network], [[delays]] and [[outages]] has an effect, on virtual time alone.

constexpr const char* time_only = R"(
seeds = [3]
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 2
[network]
kind = "fixed"
latency_s = 0.001
[training]
model = "none"
parameters = 1000
[budget]
steps = 12
[[methods]]
algorithm = "sync-sgd"
)";

// Returns recorded durations of four workers in five steps of two micro-batches.
std::string recorded_run(int stride) {
  std::string rows = "worker,step,micro_batch,duration_s\n";
  for (int worker = 0; worker < 4; ++worker)
    for (int step = 0; step < 5; ++step)
      for (int m = 0; m < 2; ++m)
        rows += fmt::format("{},{},{},0.0{}\n", worker, step, m, 11 + (stride * worker + 5 * step + 3 * m) % 17);
  return rows;
}

// Returns a recording of nine nodes. Each has one fault, at a different time.
std::string recorded_faults(double duration_s) {
  std::string rows = "node,start_s,duration_s\n";
  for (int node = 0; node < 9; ++node) rows += fmt::format("{},{},{}\n", node, 0.01 + 0.015 * node, duration_s);
  return rows;
}

const std::vector<KeyCase> clusters = {
    {{},
     {"cluster.workers=3", "cluster.micro_batch_s=0.02", "cluster.micro_batches=3", "cluster.trailing_s=0.002",
      "cluster.pace='emulate'", "cluster.micro_batch_measured=true"}},
    {{"cluster.worker_factors=[1,1,2,1]"}, {"cluster.worker_factors=[1,1,3,1]"}},
    {{"cluster.slow_workers={count=1,factor=2}", "delays=[{kind='exponential',mean=0.01}]"},
     {"cluster.slow_workers.count=2", "cluster.slow_workers.factor=3"}},
    {{"cluster.leave=[{workers=[2],after_steps=2}]", "methods=[{algorithm='async-sgd'}]",
      "cluster.worker_factors=[1,2,3,4]"},
     {"cluster.leave=[{workers=[1],after_steps=2}]", "cluster.leave=[{workers=[2],after_steps=3}]",
      "cluster.leave.0.workers=[3]", "cluster.leave.0.after_steps=1"}},
    {{"cluster={workers=4,micro_batches=2,trace={file='$/run.csv',end='wrap'}}"},
     {"cluster.trace.file='$/other.csv'", "cluster.trace.end='stop'", "cluster.trace.like={'3'=0}",
      "cluster.trace.like.3=1"}},
    {{"cluster={workers=4,micro_batches=2,trace={file='$/run.csv',end='error'}}", "budget.steps=4"},
     {"cluster.trace.like.2=0"}},
    {{"training={model='none',parameters=1000,dataset='npy',micro_batch_size=4,batching='padded'}",
      "datasets.npy={directory='$/texts',padding=0}",
      "cluster.micro_batch_s={base_s=0.01,per_token_s=1e-4,per_padded_token_s=1e-4,per_squared_length_s=1e-5}"},
     {"cluster.micro_batch_s.base_s=0.02", "cluster.micro_batch_s.per_token_s=2e-4",
      "cluster.micro_batch_s.per_padded_token_s=3e-4", "cluster.micro_batch_s.per_squared_length_s=2e-5"}},
    {{"cluster={workers=3,micro_batches=2,trace={file='$/run.csv',stretch={block_steps=3}}}"},
     {"cluster.trace.stretch.worker='own'"}},
    {{"cluster={workers=3,micro_batches=2,trace={file='$/run.csv',stretch={block_steps=3,worker='own'}}}"},
     {"cluster.trace.stretch.worker='drawn'"}},
    {{"cluster={workers=6,micro_batches=2,trace={file='$/run.csv',stretch={block_steps=3}}}"},
     {"cluster.trace.stretch.block_steps=2", "cluster.trace.stretch.redraw_worker=true",
      "cluster.trace.stretch.beyond=next-steps", "cluster.trace.stretch.together=true"}},
};

// A network of two levels: machines with two workers each form a ring. It has all-reduces and messages.
constexpr const char* two_servers =
    "network={kind='two-level',latency_s=0.01,bandwidth_bytes_per_s=1e6,group_size=2,"
    "inside={latency_s=0.001,bandwidth_bytes_per_s=1e7}}";

// Networks for messages, in which worker 1's link differs from the others, and networks with exchanges that start
// during the backward pass.
constexpr const char* messages = "methods=[{algorithm='async-sgd'}]";
std::string with_links(const std::string& network, bool has_server = true) {
  return "network={" + network + ",links=[{workers=[1],latency_s=0.003,bandwidth_bytes_per_s=4e5}]" +
         (has_server ? ",server={latency_s=0.004,bandwidth_bytes_per_s=8e5}}" : "}");
}
std::string with_overlap(const std::string& network) {
  return "network={" + network + ",overlap={buckets=2,backward_share=0.5}}";
}
constexpr const char *ring = "kind='ring',latency_s=0.001,bandwidth_bytes_per_s=1e6",
                     *tree = "kind='tree',latency_s=0.001,bandwidth_bytes_per_s=1e6",
                     *star = "kind='parameter-server',latency_s=0.001,bandwidth_bytes_per_s=1e6",
                     *two_level =
                         "kind='two-level',latency_s=0.01,bandwidth_bytes_per_s=1e6,group_size=2,"
                         "inside={latency_s=0.001,bandwidth_bytes_per_s=1e7}",
                     *racks = ",racks={group_size=2,latency_s=0.005,bandwidth_bytes_per_s=3e5}";
const std::vector<std::string> of_links = {"network.links.0.workers=[2]", "network.links.0.latency_s=0.03",
                                           "network.links.0.bandwidth_bytes_per_s=1e5"},
                               of_server = {"network.server.latency_s=0.02", "network.server.bandwidth_bytes_per_s=1e5",
                                            "network.contention=false"},
                               of_racks = {"network.racks.group_size=3", "network.racks.latency_s=0.03",
                                           "network.racks.bandwidth_bytes_per_s=1e5"},
                               of_overlap = {"network.overlap.buckets=3", "network.overlap.backward_share=0.9"};

const std::vector<KeyCase> links = {
    {{with_links(ring), messages}, of_links},
    {{with_links(ring), messages}, of_server},
    {{with_links(std::string(ring) + racks), messages}, of_racks},
    {{with_overlap(ring)}, of_overlap},
    {{with_links(tree), messages}, of_links},
    {{with_links(tree), messages}, of_server},
    {{with_links(std::string(tree) + racks), messages}, of_racks},
    {{with_overlap(tree)}, of_overlap},
    {{with_links(two_level), messages}, of_links},
    {{with_links(two_level), messages}, of_server},
    {{with_overlap(two_level)}, of_overlap},
    {{with_links(star, false), messages}, of_links},
    {{with_overlap(star)}, of_overlap},
};

const std::vector<KeyCase> networks_of_each_kind = {
    {{"network={kind='fixed',latency_s=0.001,jitter=0.5}"},
     {"network.latency_s=0.002", "network.jitter=1", "network={kind='free'}"}},
    {{"network={kind='ring',latency_s=0.001,bandwidth_bytes_per_s=1e6}"},
     {"network.latency_s=0.002", "network.bandwidth_bytes_per_s=2e6", "network.jitter=1", "network.serial_s=0.1",
      "network.kind='tree'"}},
    {{"network={kind='tree',latency_s=0.001,bandwidth_bytes_per_s=1e6}"},
     {"network.latency_s=0.002", "network.bandwidth_bytes_per_s=2e6", "network.jitter=1", "network.serial_s=0.1"}},
    {{two_servers, "cluster.workers=5"},
     {"network.latency_s=0.002", "network.bandwidth_bytes_per_s=2e6", "network.jitter=1", "network.serial_s=0.1",
      "network.group_size=3", "network.between='tree'", "network.inside.latency_s=0.002",
      "network.inside.bandwidth_bytes_per_s=2e7"}},
    {{"network={kind='parameter-server',latency_s=0.001,bandwidth_bytes_per_s=1e6}"},
     {"network.latency_s=0.002", "network.bandwidth_bytes_per_s=2e6", "network.jitter=1", "network.serial_s=0.1"}},
};

std::string delay(const std::string& keys) { return "delays=[{" + keys + "}]"; }

const std::vector<KeyCase> delays_of_each_kind = {
    {{delay("kind='constant',value=0.01")}, {"delays.0.value=0.02"}},
    {{delay("kind='uniform',low=0.01,high=0.02")}, {"delays.0.low=0", "delays.0.high=0.03"}},
    {{delay("kind='normal',mean=0.01,standard_deviation=0.002")},
     {"delays.0.mean=0.02", "delays.0.standard_deviation=0.001"}},
    {{delay("kind='exponential',mean=0.01")}, {"delays.0.mean=0.02"}},
    {{delay("kind='shifted-exponential',shift=0.01,mean=0.01")}, {"delays.0.shift=0.02", "delays.0.mean=0.02"}},
    {{delay("kind='gamma',shape=2,scale=0.01")},
     {"delays.0.shape=3", "delays.0.scale=0.02", "delays.0.kind='weibull'"}},
    {{delay("kind='weibull',shape=2,scale=0.01")}, {"delays.0.shape=3", "delays.0.scale=0.02"}},
    {{delay("kind='pareto',shape=2,minimum=0.01")}, {"delays.0.shape=3", "delays.0.minimum=0.02"}},
    {{delay("kind='bernoulli',probability=0.3,value=0.01")}, {"delays.0.probability=0.6", "delays.0.value=0.02"}},
    {{delay("kind='lognormal',mu=-5,sigma=1")}, {"delays.0.mu=-4", "delays.0.sigma=0.5", "delays.0.scale=2"}},
    {{delay("kind='bounded-lognormal',form='table',scale=0.01")}, {"delays.0.scale=0.02", "delays.0.form='formula'"}},
    {{delay("kind='bounded-lognormal',form='formula',scale=0.01")},
     {"delays.0.scale=0.02", "delays.0.mu=3", "delays.0.sigma=0.7", "delays.0.alpha=0.5", "delays.0.beta=0.2"}},
    {{delay("kind='histogram',file='$/bins.csv',scale=3")},
     {"delays.0.file='$/other_bins.csv'", "delays.0.scale=2", "delays.0.shift=0.01"}},
    {{delay("kind='histogram',data='dropcompute-160'")}, {"delays.0.data='dropcompute-192'"}},
    {{delay("kind='drift',per_step=0.002,maximum=0.01")}, {"delays.0.per_step=0.001", "delays.0.maximum=0.02"}},
    {{delay("kind='trace',file='$/run.csv',end='wrap',scale=3")},
     {"delays.0.file='$/other.csv'", "delays.0.end='stop'", "delays.0.scale=2", "delays.0.shift=0.01"}},
    {{delay("kind='trace',file='$/run.csv',end='error'"), "budget.steps=5"}, {"delays.0.scale=2"}},
    {{delay("kind='trace',file='$/run.csv',stretch={block_steps=3}"), "cluster.workers=3"},
     {"delays.0.stretch.worker='own'"}},
    {{delay("kind='trace',file='$/run.csv',stretch={block_steps=3,worker='own'}"), "cluster.workers=3"},
     {"delays.0.stretch.worker='drawn'"}},
    {{delay("kind='trace',file='$/run.csv',stretch={block_steps=3}"), "cluster.workers=6"},
     {"delays.0.stretch.block_steps=2", "delays.0.stretch.redraw_worker=true", "delays.0.stretch.beyond=next-steps",
      "delays.0.stretch.together=true"}},
};

// Keys that delays of all kinds have.
const std::vector<KeyCase> delays_of_any_kind = {
    {{delay("kind='exponential',mean=0.5,scope='micro-batch',unit='seconds'")},
     {"delays.0.unit='micro_batch'", "delays.0.scope='step'", "delays.0.scope='whole-step'", "delays.0.scope='worker'",
      "delays.0.group_size=2", "delays.0.workers=[1]", "delays.0.sleep=true",
      "delays.0.bursts={mean_on_steps=2,mean_off_steps=3}"}},
    {{delay("kind='exponential',mean=0.5,bursts={mean_on_steps=2,mean_off_steps=3}")},
     {"delays.0.bursts.mean_on_steps=4", "delays.0.bursts.mean_off_steps=9"}},
    {{"delays=[{kind='exponential',mean=0.01},{kind='exponential',mean=0.01,sleep=true}]"}, {"delays.1.mean=0.02"}},
};

const std::vector<KeyCase> outages = {
    {{"outages=[{workers=[1],at_s=0.035,duration_s=0.02}]"},
     {"outages.0.at_s=0.05", "outages.0.duration_s=0.03", "outages.0.workers=[2]", "outages.0.state='lost'"}},
    {{"outages=[{file='$/faults.csv',node_count=9}]"},
     {"outages.0.file='$/more_faults.csv'", "outages.0.time_scale=0.5", "outages.0.node_count=200",
      "outages.0.workers=[2]", "outages.0.state='lost'"}},
    {{"outages=[{file='$/faults.csv',nodes=[0,1,2,3]}]"}, {"outages.0.nodes=[3,1,2,3]"}},
    {{"outages=[{mean_time_between_s=0.05,mean_duration_s=0.02}]"},
     {"outages.0.mean_time_between_s=0.1", "outages.0.mean_duration_s=0.03", "outages.0.workers=[2]",
      "outages.0.state='lost'"}},
};

const std::vector<IdleKey> idle_cluster_keys = {
    {"cluster.pace", Hash::differs, "of the cluster of MPI alone"},
    {"cluster.micro_batch_measured", Hash::differs, "says where a number has come from"},
    {"cluster.trace.file_hash", Hash::differs, "refuses a file of other content"},
    {"cluster.trace.stretch.beyond", Hash::differs, "no run of the walk needs more micro-batches; trace_test has one"},
    {"delays[trace].stretch.beyond", Hash::differs, "the same"},
    {"delays[trace].file_hash", Hash::differs, "the same"},
    {"delays[histogram].file_hash", Hash::differs, "the same"},
    {"outages.file_hash", Hash::differs, "the same"},
    {"network[free].latency_s", Hash::differs, "is refused: a free network has no cost"},
    {"network[free].bandwidth_bytes_per_s", Hash::differs, "the same"},
    {"network[free].jitter", Hash::differs, "the same"},
    {"network[free].serial_s", Hash::differs, "the same"},
    {"network[fixed].bandwidth_bytes_per_s", Hash::differs, "is refused: a fixed cost has nothing else"},
    {"network[fixed].serial_s", Hash::differs, "the same"},
    {"network[free].server", Hash::differs, "is refused: nothing occupies a link"},
    {"network[free].links", Hash::differs, "the same"},
    {"network[free].contention", Hash::differs, "the same"},
    {"network[free].racks", Hash::differs, "the same"},
    {"network[free].overlap", Hash::differs, "the same"},
    {"network[fixed].server", Hash::differs, "the same"},
    {"network[fixed].links", Hash::differs, "the same"},
    {"network[fixed].contention", Hash::differs, "the same"},
    {"network[fixed].racks", Hash::differs, "the same"},
    {"network[fixed].overlap", Hash::differs, "the same"},
    {"network[parameter-server].server", Hash::differs, "is refused: the network's own keys are the server's"},
    {"network[parameter-server].contention", Hash::differs, "is refused: that link is shared"},
    {"network[parameter-server].racks", Hash::differs, "is refused: all share the server's link"},
    {"network[two-level].racks", Hash::differs, "is refused: its groups have uplinks"},
};

TEST_F(KeyWalk, OfClustersNetworksDelaysAndOutages) {
  write("run.csv", recorded_run(3));
  write("other.csv", recorded_run(7));
  write("faults.csv", recorded_faults(0.02));
  write("more_faults.csv", recorded_faults(0.05));
  write_texts("texts", 3);
  write("bins.csv", "bin_left_s,bin_right_s,density\n0.01,0.02,60\n0.02,0.03,40\n");
  write("other_bins.csv", "bin_left_s,bin_right_s,density\n0.01,0.02,40\n0.02,0.03,60\n");
  for (const auto& cases : {clusters, networks_of_each_kind, links, delays_of_each_kind, delays_of_any_kind, outages})
    walk(time_only, cases, idle_cluster_keys);
  expect_completeness({"cluster", "network", "delays", "outages"});
  expect_results_by_version(SYNCOPATE_SOURCE_DIR, "tests/golden/results_by_version/clusters.json");
}

}  // namespace
}  // namespace syncopate
